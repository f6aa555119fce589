"""Splitting: what is appended, as batches that fit a frame."""

from __future__ import annotations

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
