"""The log: the face of the package.

    with Log.open("orders", schema) as log:
        base = log.append(batch)          # the index of its first row
        log.sync()                        # nothing of it is lost after this
        for batch in log.read(): ...

`open` creates a log or opens and recovers one, and holds its writer lock until `close`; with
`read_only=True` it takes no lock and changes nothing. All methods may be called from several threads. In a
forked child a log is read only.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import (
    HeadraceError,
    ReadOnly,
    Refused,
    Retryable,
    SchemaMismatch,
    TooLarge,
    Trimmed,
)
from headrace.kernel.limits import NOTE_BYTES_MAX, WRITER_ID_BYTES_MAX
from headrace.log.appender import Appender, Told
from headrace.log.commit import GroupCommit
from headrace.log.cursor import Cursor
from headrace.log.damage import Recovery
from headrace.log.disk import Disk
from headrace.log.forks import stays_with_parent
from headrace.log.large_group import append_large_group
from headrace.log.meta import Meta
from headrace.log.open import Wanted, check_schema, open_appender, open_meta
from headrace.log.read_verbs import ReadVerbs
from headrace.log.settings import Settings
from headrace.log.split import split
from headrace.log.state import Commit

_RECORDS = (pa.RecordBatch, pa.Table)


class Log(ReadVerbs):
    def __init__(
        self, disk: Disk, path: Path, meta: Meta, appender: Appender | None, recovery: Recovery
    ) -> None:
        """Use `Log.open`."""
        self.path = path
        self.recovery = recovery
        """What opening had to put right."""
        self._disk = disk
        self._go_by(meta)
        self._appender = appender
        self._lock = threading.RLock()
        self._commit = GroupCommit(self._sync_now)
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        self._closed = threading.Event()
        self._gathering = False  # whether a group is open whose batches are made as they are needed
        if appender is not None:
            stays_with_parent(self)
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
        if settings is not None and not isinstance(settings, Settings):
            raise Refused(f"settings are headrace.Settings, not {type(settings).__name__}")
        wanted = Wanted(schema, order_by, strict, settings, extra)
        if read_only:
            return cls(disk, path, open_meta(disk, path, wanted), None, Recovery())
        appender, recovery = open_appender(disk, path, wanted, clock, take_over=take_over)
        return cls(disk, path, appender.meta, appender, recovery)

    # --- writing

    def append(self, records: pa.RecordBatch | pa.Table, *, beyond_limit: bool = False) -> int:
        """Append entries; the index of the first. They are durable after `sync()`.

        `beyond_limit`: a full ring takes them, too, in containers that are removed when it is trimmed; for
        those who have to say something before they can trim.
        """
        batches = self._checked(records)
        with self._lock:
            appender = self._changing()
            if not batches:
                return appender.state.next_index
            commit = None if len(batches) == 1 else _commit(appender, batches)
            return appender.append(batches, commit, beyond_limit=beyond_limit)

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
        integer = isinstance(sequence, int) and not isinstance(sequence, bool)  # JSON would say true
        if not integer or not -(1 << 63) <= sequence < 1 << 63:
            raise Refused(f"a sequence number is an integer of 64 bits, not {sequence!r}")
        batches = (batch for part in records for batch in self._checked(part))
        with self._lock:
            appender = self._changing()
            last = appender.state.commits.get(writer)
            if last is not None and sequence <= last.sequence:
                return Commit(writer, sequence, last.base_index, last.next_index, last.note, repeated=True)
            if self._meta.settings.containers or isinstance(records, Sequence):
                commit = _commit(appender, whole := list(batches), writer, sequence, note)
                appender.append(whole, commit)
                return commit
            base = appender.state.next_index
            self._gathering = True
            try:
                return append_large_group(appender, batches, Commit(writer, sequence, base, base, note))
            finally:
                self._gathering = False

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
            self._changing().head(self._key_column().encode(key))

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
            self._changing().roll()

    def trim(self, before: int) -> None:
        """Remove the entries below `before`; space is freed by whole segments."""
        with self._lock:
            appender = self._changing()
            end = appender.state.next_index
            if not isinstance(before, int) or not 0 <= before <= end:
                raise Refused(f"cannot trim before {before!r}: give an index from 0 to {end}, the log's end")
            appender.trim(before)
            appender.write_mark()

    def evolve(self, schema: pa.Schema, extra: dict[str, Any] | None = None) -> None:
        """From the next segment on, write `schema`; segments that are there keep their own.

        What raises a DiskFull or LogFull has changed nothing.
        """
        with self._lock:
            appender = self._changing()
            meta = self._meta.replace(schema=schema, extra=self._meta.extra if extra is None else extra)
            try:
                appender.change_meta(meta)
            finally:
                self._go_by(appender.meta)

    def retain(self) -> None:
        """Apply the retention policy now; otherwise it is applied whenever a segment is finalized."""
        with self._lock:
            self._changing().apply_retention()

    def truncate(self, index: int) -> None:
        """Cut off the entries from `index` on, durably."""
        with self._lock:
            appender = self._changing()
            appender.write_held()
            state = appender.state
            if index < state.base_index:
                raise Trimmed(f"cannot cut at {index}: the log begins at {state.base_index}")
            if index < state.next_index:
                self._appender = appender.cut(index)

    def tell(self, told: Told) -> None:
        """From now on `told` is told of what is written, in the thread that does and before it may go on.

        Nothing is held back in write buffers any more.
        """
        self._writer().told = told

    def check(self) -> None:
        """Raise Fenced if another writer has taken the log over, or whatever else keeps it from appending."""
        with self._lock:
            self._writer().check()

    # --- what only its writer knows

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

    # --- the end

    def close(self) -> None:
        """Make everything durable as `sync` does, let readers end, give the log free.

        What other threads have under way is finished first; what they do from then on raises `Closed`.
        """
        if self._closed.is_set():
            return
        try:
            if self._appender is not None and self._appender.failure is None:
                self.sync(force=self._meta.settings.durability == "interval")
        finally:
            with self._lock:
                self._close_now()

    def _close_now(self) -> None:
        if self._closed.is_set():  # by another thread, while this one synced
            return
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

    def _changing(self) -> Appender:
        """For who has the lock, and is about to change something."""
        if self._gathering:
            raise Refused(
                f"{self.path} is changed by what makes the batches of a group for it: do that apart"
            )
        return self._writer()

    def _writer(self) -> Appender:
        if self._appender is None or self._closed.is_set():
            self._check_open()
            raise ReadOnly(f"{self.path} is read only: so it was opened, or by the parent of this process")
        return self._appender

    def left_to_parent(self) -> None:
        """See `forks`."""
        self._lock, self._appender = threading.RLock(), None

    def _go_by(self, meta: Meta) -> None:
        self._meta = meta
        self._required = [at for at, field in enumerate(meta.schema) if not field.nullable]

    def _checked(self, records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
        if not isinstance(records, _RECORDS):
            raise SchemaMismatch(f"append takes an Arrow RecordBatch or Table, not {type(records).__name__}")
        if not records.schema.equals(self._meta.schema):
            check_schema(self._meta.schema, records.schema, str(self.path))
        for at in self._required:
            if records.column(at).null_count:
                name = self._meta.schema.field(at).name
                raise SchemaMismatch(f"{self.path}: {name!r} may not be null, and is in what was given")
        return split(records)

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


def _commit(
    appender: Appender, batches: list[pa.RecordBatch], writer: str = "", sequence: int = 0, note: str = ""
) -> Commit:
    """Of a group that is appended next."""
    base = appender.state.next_index
    return Commit(writer, sequence, base, base + sum(batch.num_rows for batch in batches), note)


def _check_text(text: str, what: str, least: int, most: int) -> None:
    try:
        size = len(text.encode())
    except (AttributeError, UnicodeEncodeError):
        raise Refused(f"{what} is text, not {text!r}") from None
    if not least <= size <= most:
        raise TooLarge(f"{what} has {least} to {most} bytes, not {size}")
