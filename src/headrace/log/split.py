"""Splitting: what is appended, as batches that fit a frame, or a container."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import pyarrow as pa

from headrace.kernel.errors import TooLarge
from headrace.kernel.limits import BATCH_BYTES_MAX

_MOST_BYTES = BATCH_BYTES_MAX - (1 << 20)
"""Room is left for the message around the buffers."""


def split(records: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """The non-empty batches of `records`, each small enough for one frame."""
    if isinstance(records, pa.RecordBatch) and _surely_fits(records):
        return [records] if records.num_rows else []
    whole = records.to_batches() if isinstance(records, pa.Table) else [records]
    return [part for batch in whole if batch.num_rows for part in _halves(batch)]


def portions(records: pa.RecordBatch, most_bytes: int | None) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at most that size, but at least one row; all in one if there is no limit.

    Each has as many rows as possible: rows that are added behind leave those before where they are.
    """
    while most_bytes is not None and records.nbytes > most_bytes:
        sizes = range(1, records.num_rows + 1)
        count = bisect_right(sizes, most_bytes, key=lambda rows: _bytes_of_first(records, rows)) or 1
        yield records.slice(0, count)
        records = records.slice(count)
        if not records.num_rows:
            return
    yield records


def _bytes_of_first(records: pa.RecordBatch, rows: int) -> int:
    size: int = records.slice(0, rows).nbytes
    return size


def _halves(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    if _surely_fits(batch) or batch.nbytes <= _MOST_BYTES:
        return [batch]
    if batch.num_rows == 1:
        raise TooLarge(f"one entry has {batch.nbytes} bytes: at most {_MOST_BYTES} are allowed")
    half = batch.num_rows // 2
    return [*_halves(batch.slice(0, half)), *_halves(batch.slice(half))]


def _surely_fits(batch: pa.RecordBatch) -> bool:
    """The size of the buffers is cheap to ask for; shared ones count once in it, hence the wide margin."""
    return bool(batch.get_total_buffer_size() <= _MOST_BYTES // 256)
