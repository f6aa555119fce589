"""Hypothesis strategies for Arrow types, and for record batches of any of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st


def _ints(bits: int, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


_times = st.integers(-(10**12), 10**12)
_PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), _ints(8, True)),
    (pa.int16(), _ints(16, True)),
    (pa.int32(), _ints(32, True)),
    (pa.int64(), _ints(64, True)),
    (pa.uint8(), _ints(8, False)),
    (pa.uint32(), _ints(32, False)),
    (pa.uint64(), _ints(64, False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=30)),
    (pa.large_string(), st.text(max_size=30)),
    (pa.string_view(), st.text(max_size=30)),
    (pa.binary(), st.binary(max_size=30)),
    (pa.large_binary(), st.binary(max_size=30)),
    (pa.binary(5), st.binary(min_size=5, max_size=5)),
    (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4, allow_nan=False)),
    (pa.decimal256(50, 2), st.decimals(-(10**15), 10**15, places=2, allow_nan=False)),
    (pa.date32(), st.integers(-10000, 10000)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.duration("ms"), _times),
    (pa.timestamp("s"), _times),
    (pa.timestamp("us", "UTC"), _times),
    (pa.timestamp("ns", "Europe/Berlin"), _times),
    (pa.null(), st.none()),
]

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def _nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.none() | values

    def a_list(of: Typed) -> Typed:
        return pa.list_(of[0]), st.lists(maybe(of[1]), max_size=4)

    def a_large_list(of: Typed) -> Typed:
        return pa.large_list(of[0]), st.lists(maybe(of[1]), max_size=4)

    def a_pair(of: Typed) -> Typed:
        return pa.list_(of[0], 2), st.lists(maybe(of[1]), min_size=2, max_size=2)

    def a_struct(of: tuple[Typed, Typed]) -> Typed:
        kind = pa.struct([pa.field("a", of[0][0]), pa.field("b", of[1][0])])
        return kind, st.fixed_dictionaries({"a": maybe(of[0][1]), "b": maybe(of[1][1])})

    def a_map(of: Typed) -> Typed:
        pairs = st.lists(st.tuples(st.text(max_size=5), maybe(of[1])), max_size=3)
        return pa.map_(pa.string(), of[0]), pairs

    return st.one_of(
        inner.map(a_list),
        inner.map(a_large_list),
        inner.map(a_pair),
        st.tuples(inner, inner).map(a_struct),
        inner.map(a_map),
    )


def typed() -> st.SearchStrategy[Typed]:
    """A type with a strategy for its values, nested up to a few levels."""
    return st.recursive(st.sampled_from(_PLAIN), _nested, max_leaves=4)


@st.composite
def record_batches(draw: st.DrawFn, *, min_rows: int = 0, large: bool | None = None) -> pa.RecordBatch:
    """A record batch of any schema, possibly a slice of a larger one, possibly over 64 KiB."""
    rows = draw(st.integers(max(min_rows, 1), 8))
    fields, arrays = [], []
    for at in range(draw(st.integers(1, 3))):
        kind, values = draw(typed())
        nullable = kind == pa.null() or draw(st.booleans())
        column = draw(st.lists(st.none() | values if nullable else values, min_size=rows, max_size=rows))
        fields.append(pa.field(f"c{at}", kind, nullable=nullable))
        arrays.append(pa.array(column, kind))
    if draw(st.booleans()) if large is None else large:
        size = 70_000 // rows
        fields.append(pa.field("large", pa.binary()))
        arrays.append(pa.array([b"\xab" * size] * rows, pa.binary()))
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    first = draw(st.integers(0, rows - min_rows)) if draw(st.booleans()) else 0
    return batch.slice(first, draw(st.integers(min_rows, rows - first)))
