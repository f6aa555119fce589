"""A follower of a stream that has caught up, as its broadcast sees it: what is handed on to its connection.

The loop hands it what comes. Where few follow, the thread that publishes sends a small piece itself, past the
loop, which would have to be woken for it and to get Python's lock: an entry is there a tenth of a millisecond
earlier. It does so on a descriptor of its own (`line`), because the loop's may be closed at any moment and be
another connection's by then; and only if nothing is on its way through the loop, so that the order is kept.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

BEHIND_BYTES = 4 << 20
"""A follower that has so much to take yet reads by itself."""
_NOW_BYTES = 1 << 16
"""A larger piece is for the loop: the thread that publishes has other things to do."""


class Piece(NamedTuple):
    """The bytes of a batch, or of a move of HEAD: then both indexes are the same."""

    first: int
    next: int
    data: bytes


class Connection(Protocol):
    """What a follower needs of a transport."""

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int: ...

    def is_closing(self) -> bool: ...


class Follower:
    """Somebody who has caught up. `index` is what it gets next; once it is `gone` it gets no more."""

    def __init__(self, index: int, connection: Connection, line: socket.socket | None = None) -> None:
        """`line` is closed with it."""
        self.index = index
        self.gone = asyncio.Event()
        self._connection = connection
        self._line = line
        self._lock = threading.Lock()
        """Held while a thread sends: who leaves does so before or after, and knows its index."""
        self._rest = b""
        """What a thread could not send of a piece: it is on its way to the loop."""

    def hand(self, piece: Piece) -> None:
        """In the loop: this comes next."""
        if self.gone.is_set() or piece.next < self.index or piece.first < self.index == piece.next:
            return
        connection = self._connection
        if (
            piece.first != self.index
            or connection.is_closing()
            or connection.get_write_buffer_size() > BEHIND_BYTES
        ):
            self.end()
            return
        connection.write(piece.data)
        self.index = piece.next

    def send_now(self, piece: Piece, soon: Callable[..., None]) -> bool:
        """In a thread, while nothing is on its way through the loop: send it; False if that cannot be."""
        line, data = self._line, piece.data
        if line is None or len(data) > _NOW_BYTES:
            return False
        with self._lock:
            if self.gone.is_set() or self._rest or piece.first != self.index:
                return False
            try:
                if self._connection.is_closing() or self._connection.get_write_buffer_size():
                    return False
                sent = line.send(data, socket.MSG_DONTWAIT)
            except (OSError, RuntimeError):  # no room, the peer has gone, or the loop is just writing
                return False
            self.index = piece.next
            if sent < len(data):
                self._rest = data[sent:]
                soon(self._send_rest)
            return True

    def _send_rest(self) -> None:
        self._connection.write(self._rest)
        self._rest = b""

    def end(self) -> None:
        """In the loop: it reads by itself from now on."""
        with self._lock:
            self.gone.set()
            if self._line is not None:
                self._line.close()
                self._line = None


def own_line(transport: asyncio.BaseTransport) -> socket.socket | None:
    """In the loop: another descriptor of a connection, for what is to be sent past its transport.

    None, if what is sent there is not what goes over the wire, or if there are too many of them already.
    """
    theirs = transport.get_extra_info("socket")
    if theirs is None or transport.get_extra_info("ssl_object") is not None:
        return None
    try:
        return socket.socket(theirs.family, theirs.type, theirs.proto, fileno=os.dup(theirs.fileno()))
    except OSError:
        return None
