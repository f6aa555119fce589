"""The data: rows of ten typed columns, and rows of 100 bytes, as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

BATCH_ROWS = 65_536
START_US = 1_700_000_000_000_000
_SYMBOLS = pa.array([f"SYM{number:04d}" for number in range(1000)])
_VENUES = pa.array([f"venue-{number}" for number in range(10)])
_NOTES = pa.array([f"note {number:06d}" for number in range(97)])

TEN_COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("symbol", pa.string()),
        pa.field("price", pa.float64()),
        pa.field("quantity", pa.int32()),
        pa.field("buy", pa.bool_()),
        pa.field("venue", pa.string()),
        pa.field("x", pa.float64()),
        pa.field("y", pa.int64()),
        pa.field("note", pa.string()),
    ]
)
HUNDRED_BYTES = pa.schema([pa.field("data", pa.binary(), nullable=False)])
HUNDRED_LETTERS = pa.schema([pa.field("data", pa.string(), nullable=False)])


def batches(schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(1)
    for start in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - start)
        made = _ten(start, count, random) if schema is TEN_COLUMNS else _hundred(schema, count, random)
        yield pa.RecordBatch.from_arrays(made, schema=schema)


def _ten(start: int, count: int, random: np.random.Generator) -> list[pa.Array]:
    ids = np.arange(start, start + count)

    def some(values: pa.Array) -> pa.Array:
        return values.take(pa.array(random.integers(0, len(values), count)))

    return [
        pa.array(ids),
        pa.array(START_US + ids * 1000, pa.timestamp("us", "UTC")),
        some(_SYMBOLS),
        pa.array(random.random(count) * 100),
        pa.array(random.integers(0, 1000, count, dtype=np.int32)),
        pa.array(random.integers(0, 2, count).astype(bool)),
        some(_VENUES),
        pa.array(random.random(count)),
        pa.array(random.integers(0, 1 << 40, count)),
        some(_NOTES),
    ]


def _hundred(schema: pa.Schema, count: int, random: np.random.Generator) -> list[pa.Array]:
    offsets = pa.py_buffer(np.arange(0, 100 * count + 1, 100, dtype=np.int32))
    letters = random.integers(ord("a"), ord("z") + 1, 100 * count, dtype=np.uint8)
    return [pa.Array.from_buffers(schema.field(0).type, count, [None, offsets, pa.py_buffer(letters)])]
