"""A TCP proxy between a client and a server that does what networks do: it delays, cuts and truncates.

    with Proxy(("127.0.0.1", port)) as proxy:
        connect to proxy.port
        proxy.harm = Cutting(Random(1), after_bytes=5_000)

A harm is asked for each piece that comes from the server. Requests pass as they are: whatever is lost is lost
on the way back, which is the harder half.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from types import TracebackType


class Harm:
    """None at all."""

    def pieces(self, piece: bytes) -> Iterator[bytes]:
        """What becomes of a piece. `Cut` ends the connection there."""
        yield piece


class Cut(Exception):
    """The connection ends here."""


@dataclass(slots=True)
class Cutting(Harm):
    """Each connection ends after some bytes, at any byte: at once, or as if the peer had ended."""

    chance: Random
    after_bytes: int
    left: dict[int, int] = field(default_factory=dict)

    def pieces(self, piece: bytes) -> Iterator[bytes]:
        me = threading.get_ident()
        left = self.left.setdefault(me, self.chance.randint(0, self.after_bytes))
        yield piece[:left]
        self.left[me] = left - len(piece)
        if len(piece) >= left:
            del self.left[me]
            raise Cut


@dataclass(slots=True)
class Delaying(Harm):
    """Each piece comes later, and in smaller pieces."""

    chance: Random
    longest_s: float = 0.01

    def pieces(self, piece: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(piece):
            size = self.chance.randint(1, len(piece))
            time.sleep(self.chance.uniform(0, self.longest_s))
            yield piece[at : at + size]
            at += size


class Proxy:
    def __init__(self, server: tuple[str, int]) -> None:
        self.server = server
        self.harm = Harm()
        self.connections = 0
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._listening.close()
        self.cut_all()

    def cut_all(self) -> None:
        """End every connection that is open."""
        with self._lock:
            opened, self._open = self._open, set()
        for each in opened:
            _end(each)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.server, 10)
        except OSError:
            _end(client)
            return
        with self._lock:
            self._open |= {client, server}
        threading.Thread(target=self._pass, args=(client, server, Harm()), daemon=True).start()
        self._pass(server, client, self.harm)

    def _pass(self, source: socket.socket, target: socket.socket, harm: Harm) -> None:
        try:
            while piece := source.recv(1 << 16):
                for part in harm.pieces(piece):
                    target.sendall(part)
        except Cut:
            self.cuts += 1
        except OSError:
            pass
        finally:
            with self._lock:
                self._open -= {source, target}
            _end(source)
            _end(target)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
