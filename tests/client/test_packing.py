"""Packing: the bytes are those of Arrow's own writer, however they are made."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.client.packing import Packing, packed

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bytes": (pa.binary(), [b"a" * 100, b"", None]),
    "text": (pa.string(), ["a", None, "c" * 9]),
    "numbers": (pa.int64(), [1, None, 3]),
    "flags": (pa.bool_(), [True, None, False]),
    "times": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None, None]),
    "decimals": (pa.decimal128(10, 2), [Decimal("1.25"), None, Decimal("-7.00")]),
    "lists": (pa.list_(pa.int32()), [[1, 2], None, []]),
    "records": (pa.struct([("a", pa.int8())]), [{"a": 1}, None, {"a": None}]),
    "nothing": (pa.null(), [None, None, None]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("rows", [slice(0, 3), slice(1, 3), slice(0, 1), slice(0, 0)])
def test_a_small_batch_is_packed_as_arrow_packs_it(name: str, rows: slice) -> None:
    kind, values = COLUMNS[name]
    schema = pa.schema([pa.field(name, kind), pa.field("n", pa.int64(), nullable=False)], {"of": "mine"})
    records = pa.RecordBatch.from_arrays([pa.array(values, kind), pa.array([1, 2, 3])], schema=schema)
    part = records.slice(rows.start, rows.stop - rows.start)
    assert bytes(Packing(schema).packed(part)) == bytes(packed(part))


def test_tables_large_batches_and_other_schemas_are_packed_too() -> None:
    schema = pa.schema([pa.field("n", pa.int64())])
    packing = Packing(schema)
    given = [
        pa.table({"n": [1, 2]}, schema=schema),
        pa.RecordBatch.from_arrays([pa.array(range(100_000))], schema=schema),
        pa.RecordBatch.from_arrays([pa.array(["a"])], names=["other"]),
        pa.RecordBatch.from_arrays([pa.array([1])], schema=schema.with_metadata({"a": "b"})),
    ]
    for each in given:
        assert bytes(packing.packed(each)) == bytes(packed(each))
        assert pa.ipc.open_stream(packing.packed(each)).read_all().to_pydict() == each.to_pydict()
