"""Staging: what a task of a sink leaves for whoever lands it, and how that one puts it in order.

A task writes its rows as *runs*: Arrow files in `<store>/staging/<stream>/<query>/<batch>/`, each sorted by
the order key. Names are unique, so an attempt that failed, or ran twice, disturbs nobody: who lands a batch
takes the runs that it is told of and nothing else, and removes the rest with the batch's directory.

All runs are merged into one sequence of batches in key order, holding one batch of each at a time.

Staged files are not synced: they matter only until the driver has them in the log, and if power fails before
that, Spark runs the batch again. Their checksum is compared when they are read.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headrace.kernel.clock import SystemClock
from headrace.kernel.errors import Damaged, NotFound
from headrace.log.disk import Disk, error_for
from headrace.log.keys import KeyColumn

STAGING_DIRECTORY = "staging"
_RUN_BYTES = 64 << 20
_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 8 << 20
_ABANDONED_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Run:
    """One staged file: rows in key order. Keys are sortable bits, 0 without an order key."""

    path: str
    rows: int
    first_key: int
    last_key: int
    checksum: int


def write_runs(
    folder: Path,
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    key: KeyColumn | None,
    *,
    bytes_most: int | None = None,
) -> list[Run]:
    """Stage what a task was given. Rows that come in order make one run, of `bytes_most` about, if given."""
    writer: _RunWriter | None = None
    runs: list[Run] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in _gathered(tables):
            records = _sorted(table.combine_chunks(), key)
            span = key.span(records) if key is not None else (0, 0)
            if writer is not None and (span[0] < writer.last_key or writer.full(bytes_most)):
                runs.append(writer.close())
                writer = None
            writer = writer or _RunWriter(folder, schema)
            writer.add(records, span)
        return [*runs, writer.close()] if writer is not None else runs
    except OSError as error:
        raise error_for(error, folder) from error


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The tables, put together until they are worth sorting."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= _RUN_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
    if any(table.num_rows for table in waiting):
        yield pa.concat_tables(waiting)


def _sorted(table: pa.Table, key: KeyColumn | None) -> pa.RecordBatch:
    records = table.to_batches()[0]
    return records if key is None else sorted_by_key(records, key)


def sorted_by_key(records: pa.RecordBatch, key: KeyColumn) -> pa.RecordBatch:
    """The rows in the order of their keys; rows of one key stay in theirs."""
    column = records.column(key.position)
    if len(column) < 2 or pc.all(pc.greater_equal(column.slice(1), column.slice(0, len(column) - 1))).as_py():
        return records
    return records.take(pc.sort_indices(column))


class _RunWriter:
    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._path = folder / f"{uuid.uuid4().hex}.arrow"
        self._file = pa.OSFile(str(self._path), "wb")
        self._writer = pa.ipc.new_stream(self._file, schema)
        self._rows = 0
        self._first_key: int | None = None
        self.last_key = 0

    def add(self, records: pa.RecordBatch, span: tuple[int, int]) -> None:
        step = max(1, min(_BATCH_ROWS, records.num_rows * _BATCH_BYTES // max(1, records.nbytes)))
        for at in range(0, records.num_rows, step):
            self._writer.write_batch(records.slice(at, step))
        self._rows += records.num_rows
        self._first_key = span[0] if self._first_key is None else self._first_key
        self.last_key = span[1]

    def full(self, bytes_most: int | None) -> bool:
        return bytes_most is not None and self._file.tell() >= bytes_most

    def close(self) -> Run:
        self._writer.close()
        self._file.close()
        with pa.memory_map(str(self._path)) as written:
            checksum = xxhash.xxh3_64_intdigest(written.read_buffer())
        return Run(str(self._path), self._rows, self._first_key or 0, self.last_key, checksum)


# --- where it lands


def read_runs(runs: list[Run], key: KeyColumn | None) -> Iterator[pa.RecordBatch]:
    """All rows of the runs in one order: by key, or run after run."""
    if key is None:
        for run in runs:
            yield from _batches(run)
        return
    ordered = sorted(enumerate(runs), key=lambda each: each[1].first_key)
    # One after the other, if none reaches into the next; at the same key, in the order they were given.
    apart = all(
        one.last_key < other.first_key or (one.last_key == other.first_key and at < then)
        for (at, one), (then, other) in pairwise(ordered)
    )
    if apart:
        for _, run in ordered:
            yield from _batches(run)
    else:
        yield from _merged([_batches(run) for run in runs], key)


def _merged(sources: list[Iterator[pa.RecordBatch]], key: KeyColumn) -> Iterator[pa.RecordBatch]:
    """Sorted sequences of batches as one; rows of one key in the order of the sources.

    Each round takes what is before the nearest end of a batch. If nothing is, that end is the key that all go
    on with: then it is taken to its last row, from one source after the other.
    """
    heads = [_Head(source) for source in sources]
    while heads := [head for head in heads if head.batch is not None]:
        bound = min(key.span(head.last_row())[1] for head in heads)
        before = [head.take(key.find(head.batch, bound)) for head in heads]
        records = sorted_by_key(pa.concat_batches(before), key)
        for at in range(0, records.num_rows, _BATCH_ROWS):
            yield records.slice(at, _BATCH_ROWS)
        if records.num_rows:
            continue
        for head in heads:
            while head.batch is not None and (rows := key.find_after(head.batch, bound)):
                yield head.take(rows)


class _Head:
    """The batch at hand of a sequence; None at its end."""

    def __init__(self, source: Iterator[pa.RecordBatch]) -> None:
        self._source = source
        self.batch: pa.RecordBatch | None = next(source, None)

    def last_row(self) -> pa.RecordBatch:
        assert self.batch is not None
        return self.batch.slice(self.batch.num_rows - 1)

    def take(self, rows: int) -> pa.RecordBatch:
        assert self.batch is not None
        taken = self.batch.slice(0, rows)
        self.batch = self.batch.slice(rows) if rows < self.batch.num_rows else next(self._source, None)
        return taken


def _batches(run: Run) -> Iterator[pa.RecordBatch]:
    try:
        mapped = pa.memory_map(run.path)
    except FileNotFoundError:
        raise NotFound(
            f"a staged file is not there ({run.path}): the driver and its workers must see the same directory"
        ) from None
    if xxhash.xxh3_64_intdigest(mapped.read_buffer()) != run.checksum:
        raise Damaged(f"the staged file {run.path} is not what was written: run the batch again")
    mapped.seek(0)
    yield from pa.ipc.open_stream(mapped)


# --- directories


@dataclass(frozen=True, slots=True)
class StagingArea:
    """Where the tasks of all writes to one stream leave their runs.

    Each write has a place there: `<query>/<batch>` for a batch of a query, or a name of its own.
    """

    path: Path

    @classmethod
    def of(cls, store: str | Path, stream: str) -> StagingArea:
        return cls(Path(store) / STAGING_DIRECTORY / stream)

    @classmethod
    def of_jobs(cls, store: str | Path, journal: str) -> StagingArea:
        """The same for a journal. Names do not begin with a dot: no stream's staging is there."""
        return cls.of(store, f".journal-{journal}")

    def folder(self, place: str) -> Path:
        return self.path / place

    def landed(self, query: str, upto_batch: int) -> None:
        """Remove what a query staged for batches up to this one: all of it is in the log, or was given up."""
        folder = self.path / query
        with suppress(OSError):  # others may be removing too
            for each in folder.iterdir():
                if each.name.isdigit() and int(each.name) <= upto_batch:
                    shutil.rmtree(each, ignore_errors=True)
        self.remove_abandoned()

    def clear(self, place: str) -> None:
        """Remove what was staged at a place."""
        shutil.rmtree(self.folder(place), ignore_errors=True)

    def clear_for_good(self, place: str) -> None:
        """The same so that no crash leaves a part of it, and no power cut brings it back."""
        if self.folder(place).is_dir():
            gone = f".gone-{uuid.uuid4().hex}"
            disk = Disk()
            disk.rename(self.folder(place), self.folder(gone))
            disk.sync_dir(self.path)
            self.clear(gone)

    def remove_abandoned(self) -> None:
        """Remove what queries left that have not staged anything for a week."""
        oldest_s = SystemClock().now_us() / 1e6 - _ABANDONED_S
        for each in self.path.iterdir() if self.path.is_dir() else ():
            with suppress(OSError):  # others may be removing too
                if max(path.stat().st_mtime for path in (each, *each.iterdir())) < oldest_s:
                    shutil.rmtree(each, ignore_errors=True)


def remove_runs(runs: Iterable[Run]) -> None:
    for run in runs:
        Path(run.path).unlink(missing_ok=True)
