"""A TCP proxy between a client and a server that does what networks do: it delays, cuts, loses, falls silent.

    with Proxy(("127.0.0.1", port)) as proxy:
        connect to proxy.port
        proxy.harm = Cutting(Random(1), after_bytes=5_000)

A harm is asked for each piece that comes from the server (`harm`) or from the client (`harm_asked`), also on
connections that are open. A line dies in two ways: a proxy that takes everything and passes nothing on
(`Swallowing`), so that the kernels of both sides see a peer that is well; or packets that are lost
(`drop_packets`), so that they do not. Neither says a word: no end, no reset.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from types import TracebackType

_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A program of the packet filter, `ret 0`: no packet reaches the socket, and none is acknowledged."""


class Harm:
    """None at all."""

    silent = False
    """Whether the end of a connection is kept from the other side, too."""

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


class Losing(Harm):
    """The next answers are lost, each with its connection: the request was taken, nobody is told."""

    def __init__(self, answers: int = 1) -> None:
        self.left = answers
        self._lock = threading.Lock()

    def pieces(self, piece: bytes) -> Iterator[bytes]:
        with self._lock:
            lost = self.left > 0
            self.left -= lost
        if lost:
            raise Cut
        yield piece


class Swallowing(Harm):
    """What comes is taken, and goes nowhere."""

    silent = True

    def __init__(self) -> None:
        self.taken_bytes = 0

    def pieces(self, piece: bytes) -> Iterator[bytes]:
        self.taken_bytes += len(piece)
        return iter(())


class Proxy:
    def __init__(self, server: tuple[str, int], scheme: str = "http") -> None:
        self.server = server
        self.harm = Harm()
        self.harm_asked = Harm()
        self.connections = 0
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False

    @classmethod
    def to(cls, url: str) -> Proxy:
        """Before the node at a URL on this machine."""
        return cls(("127.0.0.1", int(url.rsplit(":", 1)[1])), url.partition(":")[0])

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        _end(self._listening)
        self.cut_all()

    def cut_all(self) -> None:
        """End every connection that is open."""
        with self._lock:
            opened, self._open = self._open, set()
        for each in opened:
            _end(each)

    def drop_packets(self) -> None:
        """No packet of the connections that are open now arrives any more, on either side."""
        with self._lock:
            for each in self._open:
                program = ctypes.create_string_buffer(_DROP_ALL)
                where = struct.pack("HL", 1, ctypes.addressof(program))
                each.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, where)

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
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        asked = (client, server, lambda: self.harm_asked)
        threading.Thread(target=self._pass, args=asked, daemon=True).start()
        self._pass(server, client, lambda: self.harm)

    def _pass(self, source: socket.socket, target: socket.socket, now: Callable[[], Harm]) -> None:
        harm = now()
        try:
            while piece := source.recv(1 << 16):
                harm = harm if harm.silent else now()  # a line that swallowed something stays dead
                for part in harm.pieces(piece):
                    target.sendall(part)
        except Cut:
            self.cuts += 1
        except OSError:
            pass
        if harm.silent:
            return  # both stay as they are, until the proxy ends
        with self._lock:
            self._open -= {source, target}
        _end(source)
        _end(target)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
