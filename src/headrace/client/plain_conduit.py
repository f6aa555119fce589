"""Conduits of a blocking client: sockets that the thread that uses them waits for (see `client.conduits`)."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
from collections.abc import Mapping

from headrace.client.conduits import pieces
from headrace.client.errors import ConnectionLost, NoAnswer, nobody
from headrace.client.node_line import NodeLine
from headrace.client.upgrade import Handshake, address, request
from headrace.kernel.dead_lines import watch
from headrace.kernel.errors import Closed, HeadraceError

_RECEIVE_BYTES = 1 << 16
_PARTS_BYTES = 1 << 16
"""Parts up to this size are joined: one system call costs more than copying them."""


class PlainConduits:
    """Used by one thread at a time; `stop` may come from any."""

    def __init__(self, node: NodeLine) -> None:
        self._node = node
        self._process = os.getpid()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    async def open(self, path: str, word: str, headers: Mapping[str, str]) -> PlainConduit:
        _check(self._process)
        connected = self._dial()
        try:
            return self._switched(connected, request(self._node, path, word, headers))
        except OSError as error:
            connected.close()
            raise self._lost(error) from error
        except HeadraceError:
            connected.close()
            raise

    async def rest(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set() or self._process != os.getpid()

    def stop(self) -> None:
        """Whoever waits on a conduit, or for one, is let go: it has ended."""
        with self._lock:
            self._stopping.set()
            if self._socket is not None and self._process == os.getpid():  # else it is the parent's, too
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _dial(self) -> socket.socket:
        node, (host, port) = self._node, address(self._node)
        try:
            connected = socket.create_connection((host, port), node.patience.connect_s)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            watch(connected, node.patience.answer_s)
            if node.tls is not None:  # which closes it, if it fails
                connected = node.tls.wrap_socket(connected, server_hostname=host)
        except OSError as error:
            raise nobody(node.url, error) from error
        connected.settimeout(node.patience.answer_s)
        with self._lock:
            self._socket = connected
            if self._stopping.is_set():
                connected.close()
                raise Closed(f"the connection to {node.url} is closed")
        return connected

    def _switched(self, connected: socket.socket, asked: bytes) -> PlainConduit:
        handshake = Handshake()
        connected.sendall(asked)
        while not handshake.feed(connected.recv(_RECEIVE_BYTES)):
            pass
        return PlainConduit(connected, self._node, handshake)

    def _lost(self, error: OSError) -> HeadraceError:
        return _lost(self._node, error)


class PlainConduit:
    def __init__(self, connected: socket.socket, node: NodeLine, handshake: Handshake) -> None:
        self.headers = handshake.headers
        self._rest = handshake.rest
        self._socket = connected
        self._node = node
        self._process = os.getpid()

    async def send(self, *parts: bytes | memoryview) -> None:
        _check(self._process)
        try:
            if sum(map(len, parts)) <= _PARTS_BYTES:
                self._socket.sendall(b"".join(parts))
            else:
                for part in parts:
                    for piece in pieces(part):
                        self._socket.sendall(piece)
        except OSError as error:
            raise _lost(self._node, error) from error

    async def receive(self) -> bytes:
        _check(self._process)
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise _lost(self._node, error) from error

    async def receive_into(self, room: memoryview) -> int:
        _check(self._process)
        try:
            return self._socket.recv_into(room)
        except OSError as error:
            raise _lost(self._node, error) from error

    def readable(self, timeout_s: float) -> bool:
        """Whether something has come, or comes within that time."""
        if self._rest or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            return True
        if self._socket.fileno() < 0:
            return True  # closed: whoever reads is told
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def close(self) -> None:
        self._socket.close()


def _check(process: int) -> None:
    """A child would take from its parent's connection what the parent waits for."""
    if process != os.getpid():
        raise Closed("this was opened by another process: connect again")


def _lost(node: NodeLine, error: OSError) -> HeadraceError:
    if isinstance(error, TimeoutError):
        return NoAnswer(f"{node.url} said nothing for {node.patience.answer_s:g} s")
    return ConnectionLost(f"the connection to {node.url} broke ({error})")
