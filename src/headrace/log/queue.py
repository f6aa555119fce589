"""The byte queue: a log of raw bytes with a writer and a reader, after Queuefka.

    with writer("topic") as out:
        address = out.write(b"hello")     # the record's address, known at once
        out.flush()                       # nothing written so far is lost after this
    with reader("topic") as records:
        for data in records: ...

An address is a record's index in the log. Records are gathered in memory and become one Arrow batch at each
flush, so a write costs a few Python instructions. Flushing happens by itself after so many writes, so many
bytes or so many seconds, whichever comes first.

A writer is for one thread at a time (give each thread its own lock, or use `Log.append`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from pathlib import Path

import pyarrow as pa

from headrace.kernel.errors import Closed, HeadraceError, Refused, TooLarge
from headrace.log.cursor import OnDamage
from headrace.log.log import Log
from headrace.log.segment_reader import Batch
from headrace.log.settings import Finalize, Settings

RAW_SCHEMA = pa.schema([pa.field("data", pa.binary(), nullable=False)])
RECORD_BYTES_MAX = (1 << 30) - (1 << 21)
_CHUNK_BYTES = 1 << 20
"""Batches of about this size stay in the processor's cache on their way to the kernel."""


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """The writer flushes by itself after the first of these."""

    writes: int = 1_000_000
    bytes: int = 4 << 20
    seconds: float = 1.0


class Writer:
    """Appends records to a byte queue."""

    write: Callable[[bytes], int]
    """Take one record; its address. Durable after the next `flush`."""

    def __init__(self, log: Log, policy: FlushPolicy) -> None:
        """Use `writer`."""
        self._log = log
        self._policy = policy
        self._pending: list[bytes] = []
        self._next = log.next_index
        self._flushing = threading.Lock()
        self._failure: HeadraceError | None = None
        self._closing = threading.Event()
        self.write, self._restart = self._make_write()
        self._timer = threading.Thread(target=self._flush_at_intervals, name="headrace-flush", daemon=True)
        self._timer.start()

    def _make_write(self) -> tuple[Callable[[bytes], int], Callable[[], None]]:
        """`write` as a closure: local variables make it about twice as fast as a method."""
        pending, take, policy = self._pending, self._pending.append, self._policy
        address = self._next - 1
        bytes_left, writes_left = policy.bytes, policy.writes
        convert, flush = _as_bytes, self.flush

        def write(data: bytes) -> int:
            nonlocal address, bytes_left, writes_left
            if data.__class__ is not bytes:
                data = convert(data)
            take(data)
            address += 1
            bytes_left -= len(data)
            writes_left -= 1
            if bytes_left <= 0 or writes_left <= 0:
                if len(data) > RECORD_BYTES_MAX:
                    pending.pop()
                    address -= 1
                    raise TooLarge(f"a record of {len(data)} bytes: at most {RECORD_BYTES_MAX} are allowed")
                at = address
                flush()
                return at
            return address

        def restart() -> None:
            nonlocal address, bytes_left, writes_left
            address = self._next + len(pending) - 1
            bytes_left, writes_left = policy.bytes, policy.writes

        return write, restart

    def write_many(self, records: Sequence[bytes]) -> int:
        """Take many records at once; the address of the first."""
        if not isinstance(records, list | tuple):
            records = list(records)
        if not set(map(type, records)) <= {bytes}:
            records = [_as_bytes(data) for data in records]
        with self._flushing:
            self._check()
            self._append_pending()
            first = self._next
            self._append(records)
        if self._log.next_index - self._log.durable_index >= self._policy.writes:
            self.flush()
        return first

    def flush(self) -> None:
        """Make every record written so far durable, as the queue's durability says."""
        with self._flushing:
            self._check()
            self._append_pending()
        self._log.sync()

    @property
    def address(self) -> int:
        """The address of the next record."""
        return self._next + len(self._pending)

    def _append_pending(self) -> None:
        # The timer may run this while the other thread writes: records that arrive meanwhile stay for
        # the next time, because a list is sliced and appended to atomically.
        count = len(self._pending)
        if count:
            self._append(self._pending[:count])
            del self._pending[:count]
        self._restart()

    def _append(self, records: Sequence[bytes]) -> None:
        """Append records as batches that fit the cache."""
        at = 0
        while at < len(records):
            step = max(1, _CHUNK_BYTES // (len(records[at]) + 4))
            part = records[at : at + step]
            self._log.append(_batch(part))
            self._next += len(part)
            at += step

    def _flush_at_intervals(self) -> None:
        while not self._closing.wait(self._policy.seconds):
            if self._pending or self._log.durable_index < self._next:
                try:
                    self.flush()
                except HeadraceError as error:
                    self._failure = error  # told to whoever writes or flushes next
                    return

    def _check(self) -> None:
        if self._closing.is_set():
            raise Closed(f"the writer of {self._log.path} is closed")
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Flush, and let the queue go."""
        if self._closing.is_set():
            return
        try:
            self.flush()
        finally:
            self._closing.set()
            self._log.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Reader:
    """Reads the records of a byte queue in order."""

    def __init__(self, log: Log, address: int, on_damage: OnDamage | None = None) -> None:
        """Use `reader`."""
        self._log = log
        self._cursor = log.cursor(address, on_damage=on_damage)
        self._rows: Iterator[bytes] = iter(())
        self._after = address

    def read(self) -> bytes | None:
        """The next record, or None if there is none yet."""
        for data in self._rows:
            return data
        return next(self._rows, None) if self._next_batch() else None

    def read_many(self, most: int) -> list[bytes]:
        """Up to `most` records that are there now."""
        records = list(islice(self._rows, most))
        while len(records) < most and self._next_batch():
            records += islice(self._rows, most - len(records))
        return records

    def __iter__(self) -> Iterator[bytes]:
        """All records that are there now; iterate again after `wait` for later ones."""
        yield from self._rows
        while self._next_batch():
            yield from self._rows

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until `read` has a record; False when the timeout came first."""
        if length_hint(self._rows):
            return True
        while not self._next_batch():
            if not self._cursor.wait(timeout):
                return self._next_batch()
        return True

    @property
    def address(self) -> int:
        """The address of the next record to be read."""
        return self._after - length_hint(self._rows)

    def _next_batch(self) -> bool:
        item = self._cursor.next()
        while item is not None and not isinstance(item, Batch):
            item = self._cursor.next()
        if item is None:
            return False
        self._rows = iter(item.records.column(0).to_pylist())
        self._after = item.next_index
        return True

    def close(self) -> None:
        self._cursor.close()
        self._log.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def writer(
    path: str | Path,
    segment_bytes: int | None = None,
    *,
    settings: Settings | None = None,
    flush: FlushPolicy | None = None,
) -> Writer:
    """Open the byte queue at `path` for writing, creating it if nothing is there."""
    if segment_bytes is not None:
        if settings is not None:
            raise Refused("give segment_bytes or settings, not both: settings.finalize.bytes is the same")
        settings = Settings(finalize=Finalize(bytes=segment_bytes))
    return Writer(Log.open(path, RAW_SCHEMA, settings), flush or FlushPolicy())


def reader(path: str | Path, address: int = 0, *, on_damage: OnDamage | None = None) -> Reader:
    """Read the byte queue at `path` from `address` on (0: from the oldest record kept)."""
    return Reader(Log.open(path, RAW_SCHEMA, read_only=True), address, on_damage)


def _batch(records: Sequence[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(records, pa.binary())], schema=RAW_SCHEMA)


def _as_bytes(data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise Refused(f"a record is bytes, not {type(data).__name__}: encode it first")
