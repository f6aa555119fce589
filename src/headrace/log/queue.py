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

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from operator import length_hint
from pathlib import Path

import pyarrow as pa

from headrace.kernel.errors import HeadraceError, Refused, TooLarge
from headrace.log.batcher import Batcher, FlushPolicy
from headrace.log.cursor import OnDamage
from headrace.log.log import Log
from headrace.log.pack import CHUNK_BYTES, as_bytes, pack
from headrace.log.segment_reader import Batch
from headrace.log.settings import Settings

RAW_SCHEMA = pa.schema([pa.field("data", pa.binary(), nullable=False)])
RECORD_BYTES_MAX = (1 << 30) - (1 << 21)
_ROWS = 4096
"""So many records become Python objects at a time: twice as fast as a whole batch, which leaves the cache."""


class Writer:
    """Appends records to a byte queue."""

    write: Callable[[bytes], int]
    """Take one record; its address. Durable after the next `flush`."""

    def __init__(self, log: Log, policy: FlushPolicy) -> None:
        """Use `writer`."""
        self._log = log
        self._pending: list[bytes] = []
        containers = log.settings.containers
        portion_bytes = containers.portion_bytes if containers else RECORD_BYTES_MAX
        self._chunk_bytes = min(CHUNK_BYTES, portion_bytes)
        self._alone_bytes = portion_bytes
        """A larger record may not fit: it is not gathered, or it would be in the way of all behind it."""
        self._readdress: Callable[[], None] = lambda: None
        self._batcher = Batcher(log, [self._pending], self._pending_batches, policy.seconds)
        self.write = self._make_write(policy)

    def _make_write(self, policy: FlushPolicy) -> Callable[[bytes], int]:
        """`write` as a closure: local variables make it about twice as fast as a method.

        Most records have the size of the one before. As long as they do, it is known beforehand at which
        address a limit will be reached, and nothing else need be counted. While nobody is going to flush
        (`Batcher.idle`), that is at once; and so it is after each flush, in whatever thread.
        """
        batcher, pending, alone_bytes = self._batcher, self._pending, self._alone_bytes
        address = since = batcher.next_index - 1
        usual, room = 0, policy.bytes  # the size of the last record; what could be taken at `since`
        last, limit = since + policy.writes, 0  # where there are enough; where to `attend` to anything

        def write(data: bytes) -> int:
            nonlocal address
            try:
                if type(data) is bytes and len(data) == usual:
                    pending.append(data)
                    address = at = address + 1
                    return at if at < limit else attend(at)
                return write_other(data)
            except BaseException:  # it may have been taken in and not counted (Ctrl-C), or taken back
                readdress()
                raise

        def write_other(data: bytes) -> int:
            nonlocal address, since, usual, room, limit
            data = as_bytes(data)
            if len(data) > alone_bytes:
                return self._write_alone(data, enough=address + 1 >= last)
            pending.append(data)
            room -= (address - since) * usual + len(data)
            address = at = since = address + 1
            usual = len(data)
            limit = min(last, at + room // (usual or 1))
            return at if at < limit and not batcher.idle else attend(at)

        def attend(at: int) -> int:
            nonlocal limit
            limit = 0  # if this one is refused, so is the next
            if batcher.idle:
                batcher.wake()
            left = room - (at - since) * usual
            limit = min(last, at + left // (usual or 1))
            limit = 0 if batcher.idle else limit  # its `rest` may have come before the line above
            if left > 0 and at < last:
                return at
            flush = batcher.flush if at >= last else batcher.overflow
            try:
                flush()
            except HeadraceError:
                if batcher.take_back():
                    raise
                flush()  # it is in the log, but that may not be all that was to be done
            return at

        def restart() -> None:
            nonlocal since, room, last, limit  # the address is the writing thread's alone
            since, room, last, limit = address, policy.bytes, address + policy.writes, 0

        def rest() -> None:
            nonlocal limit
            limit = 0

        def readdress() -> None:
            nonlocal address
            address = batcher.upcoming - 1
            restart()  # limits are addresses: they move with it

        batcher.restart, batcher.rest, self._readdress = restart, rest, readdress
        return write

    def _write_alone(self, data: bytes, *, enough: bool) -> int:
        """Write one record now, behind what is pending; with it there may be `enough` to flush."""
        if len(data) > RECORD_BYTES_MAX:
            raise TooLarge(f"a record of {len(data)} bytes: at most {RECORD_BYTES_MAX} are allowed")
        at = self.write_many((data,))
        if enough:
            self.flush()
        return at

    def write_many(self, records: Sequence[bytes]) -> int:
        """Take many records at once; the address of the first."""
        if not isinstance(records, list | tuple):
            records = list(records)
        try:
            return self._batcher.append(_batches(pack(records, self._chunk_bytes)))
        finally:
            self._readdress()

    def _pending_batches(self, columns: Sequence[Sequence[bytes]]) -> Iterator[pa.RecordBatch]:
        return _batches(pack(columns[0], self._chunk_bytes, checked=True))

    def flush(self) -> None:
        """Make every record written so far durable, as the queue's durability says."""
        self._batcher.flush()

    @property
    def address(self) -> int:
        """The address of the next record."""
        return self._batcher.upcoming

    def close(self) -> None:
        """Flush, and let the queue go."""
        try:
            self._batcher.close()
        finally:
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
        self._column: pa.Array | None = None
        self._taken = 0
        self._rows: Iterator[bytes] = iter(())
        self._after = address

    def read(self) -> bytes | None:
        """The next record, or None if there is none yet."""
        for data in self._rows:
            return data
        return next(self._rows, None) if self._next_batch() else None

    def read_many(self, most: int) -> list[bytes]:
        """Up to `most` records that are there now."""
        if not isinstance(most, int) or most < 0:
            raise Refused(f"read_many takes a number of records from 0 on, not {most!r}")
        records = list(islice(self._rows, most))
        while len(records) < most and self._next_batch():
            records += islice(self._rows, most - len(records))
        return records

    def __iter__(self) -> Iterator[bytes]:
        """All records that are there now; iterate again after `wait` for later ones."""
        return chain.from_iterable(self._runs())  # by a generator each record would cost 20 ns more

    def _runs(self) -> Iterator[Iterator[bytes]]:
        yield self._rows
        while self._next_batch():
            yield self._rows

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until `read` has a record; False when the timeout came first."""
        if length_hint(self._rows):
            return True
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._next_batch():
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            if not self._cursor.wait(left):
                return self._next_batch()
        return True

    @property
    def address(self) -> int:
        """The address of the next record to be read."""
        return self._after - length_hint(self._rows)

    def _next_batch(self) -> bool:
        """Go on with the next rows: of the batch at hand, a cacheful at a time, or of the next one."""
        if self._column is None and not self._next_column():
            return False
        column, at = self._column, self._taken
        assert column is not None
        part = column if len(column) <= _ROWS else column.slice(at, _ROWS)
        self._rows = iter(part.to_pylist())
        self._taken += len(part)
        self._after += len(part)
        if self._taken == len(column):
            self._column = None
        return True

    def _next_column(self) -> bool:
        item = self._cursor.next()
        while item is not None and not isinstance(item, Batch):
            item = self._cursor.next()
        if item is None:
            return False
        self._column, self._taken, self._after = item.records.column(0), 0, item.base_index
        return True

    def stop(self) -> None:
        """From any thread: wake who waits; later calls raise Closed."""
        self._cursor.stop()

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
        stored = _stored_settings(Path(path)) or Settings()
        settings = replace(stored, finalize=replace(stored.finalize, bytes=segment_bytes))
    return Writer(Log.open(path, RAW_SCHEMA, settings), flush or FlushPolicy())


def _batches(arrays: Iterable[pa.Array]) -> Iterator[pa.RecordBatch]:
    return map(_batch, arrays)


def _batch(array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], schema=RAW_SCHEMA)


def _stored_settings(path: Path) -> Settings | None:
    """The settings of the queue at `path`, if there is one."""
    try:
        with Log.open(path, read_only=True) as log:
            return log.settings
    except Refused:
        return None


def reader(path: str | Path, address: int = 0, *, on_damage: OnDamage | None = None) -> Reader:
    """Read the byte queue at `path` from `address` on (0: from the oldest record kept)."""
    return Reader(Log.open(path, RAW_SCHEMA, read_only=True), address, on_damage)
