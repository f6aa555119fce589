"""The broadcast of a stream: what comes to it, packed once for all who follow it.

A follower that is behind reads by itself, in the node's pool. One that has caught up joins the broadcast, and
is sent the very bytes that all others there get: whatever a thousand followers cost, it is not a thousand
times reading. One that does not take them in time, and one that finds itself elsewhere, leaves it and
reads by itself again, from where it is.

    thread that publishes, or watches:   read()  ──►  pieces  ──►  loop:  every Follower's connection

What this node publishes is not read at all: the log tells of it as it is written (`told`). What others do is
read from the files, and so is everything that does not follow from what was told.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from headrace.kernel.errors import HeadraceError
from headrace.log.segment_reader import Batch, Head
from headrace.server.http_chunks import ArrowChunks
from headrace.stream.scan import Scan
from headrace.stream.stream import Stream

BEHIND_BYTES = 4 << 20
"""A follower that has so much to take yet reads by itself."""


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

    def __init__(self, index: int, connection: Connection) -> None:
        self.index = index
        self.gone = asyncio.Event()
        self._connection = connection

    def hand(self, piece: Piece) -> None:
        if self.gone.is_set() or piece.next < self.index or piece.first < self.index == piece.next:
            return
        connection = self._connection
        if (
            piece.first != self.index
            or connection.is_closing()
            or connection.get_write_buffer_size() > BEHIND_BYTES
        ):
            self.gone.set()
            return
        connection.write(piece.data)
        self.index = piece.next


class Broadcast:
    def __init__(self, stream: Stream, soon: Callable[..., None]) -> None:
        """`soon` has something called in the loop."""
        self._stream = stream
        self._soon = soon
        self._lock = threading.Lock()
        self._chunks: ArrowChunks | None = None
        """None: nobody follows."""
        self._index = 0
        """What comes next."""
        self._told: deque[Batch | Head | None] = deque()
        """What was written since the last time; None: something to be read. Without the lock."""
        self._scan: Scan | None = None
        """Where it reads what it was not told of."""
        self._followers: set[Follower] = set()

    # --- in threads

    def join(self, index: int, connection: Connection) -> Follower | None:
        """A follower who gets everything from `index` on; None if it is farther already."""
        with self._lock:
            if self._chunks is None:
                self._chunks = ArrowChunks(self._stream, self._stream.schema)
                self._index = index
            if self._index > index:
                return None
            follower = Follower(index, connection)
            self._followers.add(follower)
        self.read()  # what has come since it looked
        return follower

    def told(self, items: Sequence[Batch | Head]) -> None:
        """These were written. They go on with the next `read`."""
        if self._chunks is not None:
            self._told.extend(items or [None])

    def read(self) -> None:
        """Hand on what has come since the last time."""
        if self._chunks is None:
            return
        with self._lock:
            if not self._followers:
                self._close()
                return
            try:
                pieces = [self._piece(item) for item in self._news(self._chunks.schema)]
            except HeadraceError:  # each of them finds out by itself, and tells its reader
                self._close()
                self._soon(self.end)
                return
        if pieces:
            self._soon(self._hand, pieces)

    def _news(self, schema: pa.Schema) -> list[Batch | Head]:
        """What has come, from what was told if that is all of it."""
        items, told = list[Batch | Head | None](), list[Batch | Head]()
        while self._told:
            items.append(self._told.popleft())
        index = self._index
        for item in items:
            if item is None or _first(item) != index or not _fits(item, schema):
                return self._read(schema)
            told.append(item)
            index = item.next_index
        if not told:
            return self._read(schema)
        self._index = index
        return told

    def _read(self, schema: pa.Schema) -> list[Batch | Head]:
        if self._scan is not None and self._scan.index != self._index:
            self._scan.close()
            self._scan = None
        if self._scan is None:
            self._scan = Scan(self._stream.log, schema, self._index, None)
        items: list[Batch | Head] = []
        while (item := self._scan.next()) is not None:
            items.append(item)
        self._index = self._scan.index
        return items

    def _piece(self, item: Batch | Head) -> Piece:
        assert self._chunks is not None
        return Piece(_first(item), item.next_index, b"".join(self._chunks.chunks(item)))

    def _close(self) -> None:
        scan, self._scan, self._chunks = self._scan, None, None
        self._told.clear()
        if scan is not None:
            scan.close()

    def close(self) -> None:
        with self._lock:
            self._close()

    # --- in the loop

    @property
    def followers(self) -> frozenset[Follower]:
        return frozenset(self._followers)

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)

    def end(self) -> None:
        """All read by themselves from now on."""
        for follower in list(self._followers):
            follower.gone.set()
        self._followers.clear()

    def _hand(self, pieces: list[Piece]) -> None:
        for follower in list(self._followers):
            for piece in pieces:
                follower.hand(piece)
            if follower.gone.is_set():  # perhaps nobody waits for it: a reader may go while it joins
                self._followers.discard(follower)


def _first(item: Batch | Head) -> int:
    return item.base_index if isinstance(item, Batch) else item.next_index


def _fits(item: Batch | Head, schema: pa.Schema) -> bool:
    return isinstance(item, Head) or bool(item.records.schema.equals(schema))
