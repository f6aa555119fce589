"""The log: the face of the package.

    with Log.open("orders", schema) as log:
        base = log.append(batch)          # the index of its first row
        log.sync()                        # nothing of it is lost after this
        for batch in log.read(): ...

`open` creates a log or opens and recovers one, and holds its writer lock until `close`; with
`read_only=True` it takes no lock and changes nothing. All methods may be called from several threads.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import (
    Closed,
    HeadraceError,
    KeyOrder,
    ReadOnly,
    Refused,
    Retryable,
    SchemaMismatch,
    TooLarge,
    Trimmed,
)
from headrace.kernel.limits import NOTE_BYTES_MAX, WRITER_ID_BYTES_MAX
from headrace.log.appender import Appender
from headrace.log.body import BodyDecoder
from headrace.log.commit import GroupCommit
from headrace.log.cursor import Cursor, OnDamage
from headrace.log.damage import Recovery, Report
from headrace.log.disk import Disk
from headrace.log.info import LogInfo, current_extent, gather_info
from headrace.log.keys import KeyColumn
from headrace.log.mark import Extent, Settled
from headrace.log.meta import Meta
from headrace.log.open import Wanted, check_schema, open_appender, open_meta
from headrace.log.seek import index_of_key
from headrace.log.segment_name import Listing
from headrace.log.segment_reader import Batch, Head
from headrace.log.settings import Settings
from headrace.log.split import split
from headrace.log.state import Commit
from headrace.log.verify import Progress, verify


class Log:
    def __init__(
        self, disk: Disk, path: Path, meta: Meta, appender: Appender | None, recovery: Recovery
    ) -> None:
        """Use `Log.open`."""
        self.path = path
        self.recovery = recovery
        """What opening had to put right."""
        self._disk = disk
        self._meta = meta
        self._appender = appender
        self._required = [at for at, field in enumerate(meta.schema) if not field.nullable]
        self._lock = threading.RLock()
        self._commit = GroupCommit(self._sync_now)
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        self._closed = threading.Event()
        if appender is not None and meta.settings.durability == "interval":
            threading.Thread(target=self._sync_at_intervals, name="headrace-sync", daemon=True).start()

    @classmethod
    def open(
        cls,
        path: str | Path,
        schema: pa.Schema | None = None,
        settings: Settings | None = None,
        *,
        order_by: str | None = None,
        strict: bool = False,
        read_only: bool = False,
        take_over: bool = False,
        extra: dict[str, Any] | None = None,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> Log:
        """Open the log at `path`, or create it if a schema is given and nothing is there.

        What is given is checked against what the log was created with. `settings` replace the stored ones,
        except for the size of containers, which is fixed for the log's life. `take_over` takes the log from
        a writer that still holds it; that one gets `Fenced` and can acknowledge nothing more.
        """
        disk, clock, path = disk or Disk(), clock or SystemClock(), Path(path)
        wanted = Wanted(schema, order_by, strict, settings, extra)
        if read_only:
            return cls(disk, path, open_meta(disk, path, wanted), None, Recovery())
        appender, recovery = open_appender(disk, path, wanted, clock, take_over=take_over)
        return cls(disk, path, appender.meta, appender, recovery)

    # --- writing

    def append(self, records: pa.RecordBatch | pa.Table) -> int:
        """Append entries; the index of the first. They are durable after `sync()`."""
        batches = self._checked(records)
        with self._lock:
            appender = self._writer()
            if len(batches) <= 1:
                return appender.append(batches) if batches else appender.state.next_index
            return self._append_group(appender, batches, "", 0, "").base_index

    def append_group(
        self, records: Iterable[pa.RecordBatch | pa.Table], *, writer: str, sequence: int, note: str = ""
    ) -> Commit:
        """Append several batches as one atomic group: readers see all of it or nothing.

        The batches may be made as they are needed: a group can be larger than memory. An error that the
        making raises after a part was written leaves the log broken, for reopening to put right.

        `writer` and `sequence` make it safe to repeat: a group whose sequence number is not larger than the
        last one committed by that writer is answered (`repeated=True`), not appended again.
        """
        _check_text(writer, "a writer's id", 1, WRITER_ID_BYTES_MAX)
        _check_text(note, "a group's note", 0, NOTE_BYTES_MAX)
        if not isinstance(sequence, int) or not -(1 << 63) <= sequence < 1 << 63:
            raise Refused(f"a sequence number is an integer of 64 bits, not {sequence!r}")
        batches = (batch for part in records for batch in self._checked(part))
        with self._lock:
            appender = self._writer()
            last = appender.state.commits.get(writer)
            if last is not None and sequence <= last.sequence:
                return Commit(writer, sequence, last.base_index, last.next_index, last.note, repeated=True)
            if self._meta.settings.containers or isinstance(records, Sequence):
                return self._append_group(appender, list(batches), writer, sequence, note)
            base = appender.state.next_index
            return appender.append_large_group(batches, Commit(writer, sequence, base, base, note))

    def last_commit(self, writer: str) -> Commit | None:
        """The last group that `writer` committed."""
        with self._lock:
            return self._writer().state.commits.get(writer)

    def commits(self) -> list[Commit]:
        """The last group of every writer that is remembered, the one committed longest ago first."""
        with self._lock:
            return list(self._writer().state.commits.values())

    def head(self, key: Any) -> None:
        """Move HEAD: promise that no later entry will have a smaller order key."""
        with self._lock:
            self._writer().head(self._key_column().encode(key))

    def sync(self, *, force: bool = False) -> None:
        """Make what was appended so far durable, as the log's durability says; `force`: on disk in any case.

        Threads that call this at the same time share one sync of the disk.
        """
        with self._lock:
            appender = self._writer()
            if appender.failure is not None:
                raise appender.failure
            appender.write_held()
            ticket = appender.tickets
        if force or self._meta.settings.durability == "fsync":
            self._commit.sync(ticket)

    def roll(self) -> None:
        """Finalize the active segment now and begin the next one."""
        with self._lock:
            self._writer().roll()

    def trim(self, before: int) -> None:
        """Remove the entries below `before`; space is freed by whole segments."""
        with self._lock:
            appender = self._writer()
            if before < 0 or before > appender.state.next_index:
                raise Refused(f"cannot trim before {before}: the log ends at {appender.state.next_index}")
            appender.trim(before)
            appender.write_mark()

    def evolve(self, schema: pa.Schema, extra: dict[str, Any] | None = None) -> None:
        """From the next segment on, write `schema`; segments that are there keep their own."""
        with self._lock:
            appender = self._writer()
            meta = self._meta.replace(schema=schema, extra=self._meta.extra if extra is None else extra)
            appender.change_meta(meta)
            self._meta = meta
            self._required = [at for at, field in enumerate(schema) if not field.nullable]

    def retain(self) -> None:
        """Apply the retention policy now; otherwise it is applied whenever a segment is finalized."""
        with self._lock:
            self._writer().apply_retention()

    def truncate(self, index: int) -> None:
        """Cut off the entries from `index` on, durably."""
        with self._lock:
            appender = self._writer()
            appender.write_held()
            state = appender.state
            if index < state.base_index:
                raise Trimmed(f"cannot cut at {index}: the log begins at {state.base_index}")
            if index < state.next_index:
                self._appender = appender.cut(index)

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

    def seek_key(self, key: Any) -> int:
        """The index of the first entry whose order key is at least `key`; the next index if there is none."""
        return self.seek_sortable(self.sortable_key(key))

    def seek_sortable(self, key: int) -> int:
        """The same for a key that is given as its 64 sortable bits."""
        self._show_held()
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

    @property
    def head_key(self) -> int:
        """HEAD, sortable: no later entry has a smaller order key. Known to the writer."""
        return self._writer().state.head_key

    @property
    def last_key(self) -> int | None:
        """The order key of the last entry, sortable; HEAD may be further on. Known to the writer."""
        return self._writer().state.last_key

    @property
    def commits_per_sync(self) -> tuple[int, int]:
        """How often `sync` was asked for, and how many syncs of the disk that took."""
        return self._commit.commits, self._commit.syncs

    def info(self) -> LogInfo:
        self._check_open()
        return gather_info(self._disk, self.path, self._meta, self._extent())

    def verify(self, progress: Progress | None = None) -> Report:
        """Read and check every byte; nothing is changed."""
        self._show_held()
        return verify(self._disk, self.path, self._meta, progress)

    # --- the end

    def close(self) -> None:
        """Make everything durable as `sync` does, let readers end, give the log free."""
        if self._closed.is_set():
            return
        try:
            if self._appender is not None and self._appender.failure is None:
                self.sync(force=self._meta.settings.durability == "interval")
        finally:
            self._closed.set()
            for cursor in list(self._cursors):
                cursor.stop()
            if self._appender is not None:
                self._appender.close(clean=True)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside

    def _writer(self) -> Appender:
        self._check_open()
        if self._appender is None:
            raise ReadOnly(f"{self.path} was opened to be read only")
        return self._appender

    def _show_held(self) -> None:
        """Readers are to see what write buffers still hold back."""
        self._check_open()
        with self._lock:
            if self._appender is not None and self._appender.failure is None:
                self._appender.write_held()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed(f"the log {self.path} is closed")

    def _checked(self, records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
        if not isinstance(records, pa.RecordBatch | pa.Table):
            raise SchemaMismatch(f"append takes an Arrow RecordBatch or Table, not {type(records).__name__}")
        if not records.schema.equals(self._meta.schema):
            check_schema(self._meta.schema, records.schema, str(self.path))
        for at in self._required:
            if records.column(at).null_count:
                name = self._meta.schema.field(at).name
                raise SchemaMismatch(f"{self.path}: {name!r} may not be null, and is in what was given")
        return split(records)

    def _append_group(
        self, appender: Appender, batches: list[pa.RecordBatch], writer: str, sequence: int, note: str
    ) -> Commit:
        base = appender.state.next_index
        commit = Commit(writer, sequence, base, base + sum(batch.num_rows for batch in batches), note)
        appender.append(batches, commit)
        return commit

    def _key_column(self) -> KeyColumn:
        if self._meta.order_by is None:
            raise Refused(f"{self.path} is ordered by index: it has no other order key")
        return KeyColumn(self._meta.schema, self._meta.order_by)

    def _extent(self) -> Extent:
        return (
            self._appender.extent() if self._appender else current_extent(self._disk, self.path, self._meta)
        )

    def _sync_now(self) -> int:
        with self._lock:
            appender = self._writer()
            written = appender.written()
        appender.sync(written)  # without the lock: others append meanwhile, and wait for the next sync
        return written.ticket

    def _sync_at_intervals(self) -> None:
        while not self._closed.wait(self._meta.settings.sync_interval_ms / 1000):
            try:
                self.sync(force=True)
            except Retryable:
                continue  # a full disk: what is held back is tried again
            except HeadraceError:
                return  # the appender remembers, and tells the next caller


def _check_text(text: str, what: str, least: int, most: int) -> None:
    try:
        size = len(text.encode())
    except (AttributeError, UnicodeEncodeError):
        raise Refused(f"{what} is text, not {text!r}") from None
    if not least <= size <= most:
        raise TooLarge(f"{what} has {least} to {most} bytes, not {size}")
