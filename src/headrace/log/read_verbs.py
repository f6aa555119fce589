"""The verbs of a log that change nothing: reading, looking things up, and what a log knows of itself.

They work the same on a log that is open for writing and on one that is open for reading only. The first
knows how far it reaches; the second asks the mark.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.kernel.errors import Closed, KeyOrder, Refused
from headrace.log.appender import Appender
from headrace.log.body import BodyDecoder
from headrace.log.claim import Claim, Standing, check_claim
from headrace.log.cursor import Cursor, OnDamage
from headrace.log.damage import Report
from headrace.log.disk import Disk
from headrace.log.frame_cursor import FrameCursor
from headrace.log.info import LogInfo, current_extent, gather_info
from headrace.log.keys import KeyColumn
from headrace.log.mark import Extent, Settled
from headrace.log.meta import Meta, load_meta
from headrace.log.moving import look_again
from headrace.log.recover import newest_epoch
from headrace.log.seek import index_of_key
from headrace.log.segment_name import Listing
from headrace.log.segment_reader import Batch, Head
from headrace.log.settings import Settings
from headrace.log.verify import Progress, verify


class ReadVerbs:
    path: Path
    _disk: Disk
    _meta: Meta
    _appender: Appender | None
    _lock: threading.RLock
    _cursors: weakref.WeakSet[Cursor]
    _closed: threading.Event

    # --- reading

    def read(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        follow: bool = False,
        durable: bool = False,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[Batch]:
        """The batches from `start` (0: the oldest kept) up to, not including, `stop`.

        `follow` waits for more at the end, until `stop` or until the log is closed. `durable` leaves out
        what could still be lost in a power cut. A damaged place raises `DamagedEntries`, or is given to
        `on_damage` and read over.
        """
        for item in self.read_all(
            start, stop, follow=follow, durable=durable, columns=columns, on_damage=on_damage
        ):
            if isinstance(item, Batch):
                yield item

    def read_all(
        self,
        start: int = 0,
        stop: int | None = None,
        *,
        follow: bool = False,
        durable: bool = False,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[Batch | Head]:
        """Like `read`, with the moves of HEAD between the batches."""
        cursor = self.cursor(start, columns=columns, on_damage=on_damage)
        try:
            while stop is None or cursor.index < stop:
                if cursor.stopped:
                    if follow:
                        return
                    self._check_open()
                limit = self.durable_index if durable else None
                item = None if limit is not None and cursor.index >= limit else cursor.next()
                if isinstance(item, Batch):
                    last = min(n for n in (stop, limit, item.next_index) if n is not None)
                    if last < item.next_index:
                        item = item.slice(item.base_index, last)
                        cursor.back_to(last)
                if item is not None:
                    yield item
                elif not follow or not cursor.wait_open():
                    return
        finally:
            cursor.close()

    def cursor(
        self, start: int = 0, *, columns: Sequence[str] | None = None, on_damage: OnDamage | None = None
    ) -> Cursor:
        """A cursor at `start`, for callers that want to decide themselves when to wait."""
        self._show_held()
        if not isinstance(start, int) or start < 0:
            raise Refused(f"an index is a number from 0 on, not {start!r}")
        if columns is not None:
            BodyDecoder(self._meta.schema, columns)  # names that are no columns are refused here
        cursor = Cursor(self._disk, self.path, self._meta, start, columns=columns, on_damage=on_damage)
        self._cursors.add(cursor)
        if self._closed.is_set():  # closed just now, by another thread that did not see this cursor
            cursor.stop()
        return cursor

    def frames(self, claim: Claim | None = None, noun: str = "stream") -> FrameCursor:
        """The settled frames as they are, for a copy: all, or those after what the copy claims to have.

        `noun` is what people call the log, in advice to them.
        """
        self._show_held()
        meta = load_meta(self._disk, self.path)  # as it is now: another writer may have changed it
        if claim is not None:
            listing = Listing.of(self._disk.names(self.path))
            epoch = max(self._extent().epoch, newest_epoch(self._disk, self.path, listing, meta))
            standing = Standing(self.first_index, self.settled.next_index, epoch, noun)
            check_claim(self._disk, self.path, meta, claim, standing)
        cursor = FrameCursor(self._disk, self.path, meta, lambda: self.settled)
        if claim is not None:
            cursor.begin_at(claim.next_index, claim.head_key, claim.last)
        self._cursors.add(cursor)
        return cursor

    def seek_key(self, key: Any) -> int:
        """The index of the first entry whose order key is at least `key`; the next index if there is none."""
        return self.seek_sortable(self.sortable_key(key))

    def seek_sortable(self, key: int) -> int:
        """The same for a key that is given as its 64 sortable bits."""
        self._show_held()
        return look_again(lambda: self._seek(key))

    def _seek(self, key: int) -> int:
        first_index, next_index = self.first_index, self.next_index
        if self._meta.order_by is None:
            return max(first_index, min(key, next_index))
        found = index_of_key(self._disk, self.path, self._meta, key, first_index)
        return next_index if found is None else found

    def sortable_key(self, key: Any) -> int:
        """An order key as the 64 bits that names and headers compare by."""
        if self._meta.order_by is not None:
            return self._key_column().encode(key)
        if not isinstance(key, int):
            raise KeyOrder(f"{self.path} is ordered by index, and {key!r} is none")
        return key

    # --- what it knows of itself

    @property
    def schema(self) -> pa.Schema:
        return self._meta.schema

    @property
    def meta(self) -> Meta:
        return self._meta

    @property
    def settings(self) -> Settings:
        return self._meta.settings

    @property
    def first_index(self) -> int:
        self._check_open()
        segments = Listing.of(self._disk.names(self.path)).segments
        return max(self._extent().base_index, segments[0].first_index if segments else 0)

    @property
    def next_index(self) -> int:
        return self._extent().next_index

    @property
    def durable_index(self) -> int:
        """Every entry below it survives a power cut."""
        return self._extent().durable_index

    @property
    def settled(self) -> Settled:
        """How far one may read who must never see an entry, or HEAD, taken back by a power cut."""
        extent = self._extent()
        if self._meta.settings.durability == "os":
            return Settled(extent.next_index, extent.head_key)
        return Settled(extent.durable_index, extent.durable_head)

    def info(self) -> LogInfo:
        self._check_open()
        return look_again(lambda: gather_info(self._disk, self.path, self._meta, self._extent()))

    def verify(self, progress: Progress | None = None) -> Report:
        """Read and check every byte; nothing is changed."""
        self._show_held()
        return verify(self._disk, self.path, self._meta, progress)

    # --- inside

    def _show_held(self) -> None:
        """Readers are to see what write buffers still hold back."""
        with self._lock:
            self._check_open()
            if self._appender is not None and self._appender.failure is None:
                self._appender.write_held()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed(f"the log {self.path} is closed")

    def _key_column(self) -> KeyColumn:
        if self._meta.order_by is None:
            raise Refused(f"{self.path} is ordered by index: it has no other order key")
        return KeyColumn(self._meta.schema, self._meta.order_by)

    def _extent(self) -> Extent:
        if self._appender is not None:
            return self._appender.reach.extent()
        return current_extent(self._disk, self.path, self._meta)
