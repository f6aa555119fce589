"""The broadcast of a stream: what comes to it, packed once for all who follow it.

A follower that is behind reads by itself, in the node's pool. One that has caught up joins the broadcast, and
is sent the very bytes that all others there get: whatever a thousand followers cost, it is not a thousand
times reading. One that does not take them in time, and one that finds itself elsewhere, leaves it and
reads by itself again, from where it is.

    thread that publishes, or watches:   read()  ──►  pieces  ──►  loop:  every Follower's connection
                                                        └──────►  Followers that are few, at once

What this node publishes is not read at all: the log tells of it as it is written (`told`). What others do is
read from the files, and so is everything that does not follow from what was told.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pyarrow as pa

from headrace.kernel.errors import HeadraceError
from headrace.log.segment_reader import Batch, Head
from headrace.server.follower import Connection, Follower, Piece
from headrace.server.http_chunks import ArrowChunks
from headrace.stream.scan import Scan
from headrace.stream.stream import Stream

_logger = logging.getLogger("headrace.server")
_FEW = 4
"""So many followers are sent small pieces by the thread that publishes. More would keep it from its sync."""


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
        self._head: Piece | None = None
        """The last move of HEAD, if no entry came after it: its index does not tell who has got it."""
        self._told: deque[Batch | Head | None] = deque()
        """What was written since the last time; None: something to be read. Without the lock."""
        self._scan: Scan | None = None
        """Where it reads what it was not told of."""
        self._followers: set[Follower] = set()
        self._posted = 0
        """How often the loop was given something to hand on; by threads that hold the lock."""
        self._handed = 0
        """How often it has done so."""

    @property
    def few(self) -> bool:
        """Whether one more may have a line of its own (`follower.own_line`)."""
        return len(self._followers) < _FEW

    # --- in threads

    def join(self, index: int, connection: Connection, line: socket.socket | None = None) -> Follower | None:
        """A follower who gets everything from `index` on; None if it is farther already.

        It is to leave, whoever waits for it by then. `line` is closed with it, or now.
        """
        with ExitStack() as failing, self._lock:
            if line is not None:
                failing.callback(line.close)
            if self._chunks is None:
                self._chunks = ArrowChunks(self._stream, self._stream.schema)
                self._index = index
            if self._index > index:
                return None
            follower = Follower(index, connection, line)
            self._followers.add(follower)
            if self._head is not None:  # handed on, perhaps, since it looked; who has it takes it once
                self._post([self._head], [follower])
            failing.pop_all()
        self.read()  # what has come since it looked
        return follower

    def told(self, items: Sequence[Batch | Head]) -> None:
        """These were written. They go on with the next `pass_on`."""
        if self._chunks is not None:
            self._told.extend(items or [None])

    def pass_on(self) -> None:
        """Hand on what was told, if anything was."""
        if self._told:
            self.read()

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
            except Exception as error:  # each of them finds out by itself, and tells its reader
                if not isinstance(error, HeadraceError):
                    _logger.error(
                        "the stream %s is read by each of its readers", self._stream.name, exc_info=error
                    )
                self._close()
                self._soon(self.end)
                return
            if pieces:
                self._head = pieces[-1] if pieces[-1].first == pieces[-1].next else None
            followers = list(self._followers)
            if len(pieces) == 1 and len(followers) <= _FEW and self._posted == self._handed:
                (piece,) = pieces
                followers = [each for each in followers if not each.send_now(piece, self._soon)]
            if pieces and followers:
                self._post(pieces, followers)

    def _post(self, pieces: list[Piece], followers: list[Follower]) -> None:
        """With the lock: let the loop hand them on."""
        self._posted += 1
        self._soon(self._hand, pieces, followers)

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
        scan, self._scan, self._chunks, self._head = self._scan, None, None, None
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
        follower.end()
        self._followers.discard(follower)

    def end(self) -> None:
        """All read by themselves from now on."""
        for follower in list(self._followers):
            follower.end()
        self._followers.clear()

    def _hand(self, pieces: list[Piece], followers: list[Follower]) -> None:
        for follower in followers:
            for piece in pieces:
                follower.hand(piece)
            if follower.gone.is_set():
                self._followers.discard(follower)
        self._handed += 1


def _first(item: Batch | Head) -> int:
    return item.base_index if isinstance(item, Batch) else item.next_index


def _fits(item: Batch | Head, schema: pa.Schema) -> bool:
    return isinstance(item, Head) or bool(item.records.schema.equals(schema))
