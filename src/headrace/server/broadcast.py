"""The broadcast of a stream: what comes to it, read and packed once for all who follow it.

A follower that is behind reads by itself, in the node's pool. One that has caught up joins the broadcast, and
is handed the very bytes that all others there get: whatever a thousand followers cost, it is not a thousand
times reading. One that does not take them in time, and one that finds itself elsewhere, leaves it and
reads by itself again, from where it is.

    thread that publishes, or watches:   read()  ──►  pieces  ──►  loop:  every Follower's queue
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.kernel.errors import HeadraceError
from headrace.log.segment_reader import Batch
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


class Follower:
    """Somebody who has caught up. `index` is what it gets next."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._pieces: deque[bytes] = deque()
        self._bytes = 0
        self._gone = False
        self._come = asyncio.Event()

    async def more(self) -> list[bytes]:
        """What has come, at least one piece; [] if it has to read by itself."""
        if not self._pieces and not self._gone:
            await self._come.wait()
        taken, self._bytes = list(self._pieces), 0
        self._pieces.clear()
        if not self._gone:
            self._come.clear()
        return taken

    def hand(self, piece: Piece) -> None:
        if self._gone or piece.next < self.index or piece.first < self.index == piece.next:
            return
        if piece.first != self.index or self._bytes > BEHIND_BYTES:
            self.leave()
            return
        self._pieces.append(piece.data)
        self._bytes += len(piece.data)
        self.index = piece.next
        self._come.set()

    def leave(self) -> None:
        """It gets what it was handed, and no more."""
        self._gone = True
        self._come.set()


class Broadcast:
    def __init__(self, stream: Stream, soon: Callable[..., None]) -> None:
        """`soon` has something called in the loop."""
        self._stream = stream
        self._soon = soon
        self._lock = threading.Lock()
        self._scan: Scan | None = None
        self._chunks: ArrowChunks | None = None
        self._followers: set[Follower] = set()

    # --- in threads

    def join(self, index: int) -> Follower | None:
        """A follower who gets everything from `index` on; None if it is farther already."""
        with self._lock:
            if self._scan is None:
                self._scan = Scan(self._stream.log, self._stream.schema, index, None)
                self._chunks = ArrowChunks(self._stream, self._scan.schema)
            if self._scan.index > index:
                return None
            follower = Follower(index)
            self._followers.add(follower)
        self.read()  # what has come since it looked
        return follower

    def read(self) -> None:
        """Hand on what has come since the last time."""
        if self._scan is None:
            return
        with self._lock:
            if not self._followers:
                self._close()
                return
            try:
                pieces = self._read()
            except HeadraceError:  # each of them finds out by itself, and tells its reader
                self._close()
                self._soon(self.end)
                return
        if pieces:
            self._soon(self._hand, pieces)

    def _read(self) -> list[Piece]:
        assert self._scan is not None
        assert self._chunks is not None
        pieces: list[Piece] = []
        while True:
            item: Any = self._scan.next()
            if item is None:
                return pieces
            first = item.base_index if isinstance(item, Batch) else item.next_index
            pieces.append(Piece(first, item.next_index, b"".join(self._chunks.chunks(item))))

    def _close(self) -> None:
        scan, self._scan = self._scan, None
        if scan is not None:
            scan.close()

    def close(self) -> None:
        with self._lock:
            self._close()

    # --- in the loop

    @property
    def followers(self) -> int:
        return len(self._followers)

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)

    def end(self) -> None:
        """All read by themselves from now on."""
        for follower in list(self._followers):
            follower.leave()
        self._followers.clear()

    def _hand(self, pieces: list[Piece]) -> None:
        for follower in list(self._followers):
            for piece in pieces:
                follower.hand(piece)
