"""Bodies of one publisher: what is read the short way is what the long way would have read, or refused."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import SchemaMismatch, TooLarge
from headrace.server.http_limits import HttpLimits
from headrace.server.http_publish import published_table
from headrace.server.published_bodies import PublishedBodies

NUMBERS = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string())])
OTHERS = pa.schema([pa.field("n", pa.decimal128(20, 2))])


def numbers(*given: int) -> pa.RecordBatch:
    columns = [pa.array(given, pa.int64()), pa.array([str(n) * 3 for n in given])]
    return pa.RecordBatch.from_arrays(columns, schema=NUMBERS)


def others(*given: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(given, OTHERS.field(0).type)], schema=OTHERS)


def body(schema: pa.Schema, batches: list[pa.RecordBatch], compression: str | None = None) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue().to_pybytes())


some_numbers = st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=3)


@given(st.lists(st.tuples(st.booleans(), some_numbers, st.sampled_from([None, "lz4", "zstd"])), max_size=6))
def test_bodies_of_any_schemas_in_any_order_hold_what_was_sent(
    sent: list[tuple[bool, list[list[int]], str | None]],
) -> None:
    bodies = PublishedBodies(HttpLimits())
    for other, rows, compression in sent:
        batches = [others(*row) if other else numbers(*row) for row in rows]
        schema = OTHERS if other else NUMBERS
        found = bodies.records(body(schema, batches, compression))
        assert found.schema == schema
        assert found.to_pylist() == pa.Table.from_batches(batches, schema).to_pylist()


def test_a_batch_whose_schema_came_before_is_not_made_a_table() -> None:
    bodies = PublishedBodies(HttpLimits())
    assert isinstance(bodies.records(body(NUMBERS, [numbers(1)])), pa.Table)
    assert isinstance(bodies.records(body(NUMBERS, [numbers(2)])), pa.RecordBatch)


@given(st.integers(0, 1 << 32))
def test_a_body_that_was_changed_on_its_way_is_read_or_refused_as_it_would_be_alone(seed: int) -> None:
    chance, limits = random.Random(seed), HttpLimits()
    bodies = PublishedBodies(limits)
    good = body(NUMBERS, [numbers(1, 2, 3)])
    bodies.records(good)
    bad = bytearray(good)
    for _ in range(chance.randint(1, 3)):
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    bad = bad[: len(bad) - chance.choice([0, 0, 0, 1, 8, 9])]
    try:
        alone = published_table(bytes(bad), limits).to_pylist()
    except (SchemaMismatch, TooLarge):
        alone = None
    try:
        found = bodies.records(memoryview(bytes(bad))).to_pylist()
    except (SchemaMismatch, TooLarge):
        found = None
    assert found == alone


def test_the_second_body_has_the_limits_of_the_first() -> None:
    bodies = PublishedBodies(HttpLimits(body_bytes=10_000, rows=3))
    bodies.records(body(NUMBERS, [numbers(1)]))
    large = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["a" * 20_000])], schema=NUMBERS)
    packed = body(NUMBERS, [large], "zstd")
    assert len(packed) < 2_000
    with pytest.raises(TooLarge, match="unpacked"):
        bodies.records(packed)
    with pytest.raises(TooLarge, match="4 entries"):
        bodies.records(body(NUMBERS, [numbers(1, 2, 3, 4)]))


def test_text_that_is_none_is_refused_in_every_body() -> None:
    bodies = PublishedBodies(HttpLimits())
    good = bytes(body(NUMBERS, [numbers(1)]))
    bodies.records(memoryview(good))
    assert good.count(b"111") == 1
    with pytest.raises(SchemaMismatch, match="UTF"):
        bodies.records(memoryview(good.replace(b"111", b"\xff\xff\xff")))
