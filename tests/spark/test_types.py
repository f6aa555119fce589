"""What a stream stores, as Spark sees it: every type, every column, exactly the schema that Spark expects."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.stream.samples import Number, publish_all, temporary_store

import headrace as hr
from headrace.kernel.errors import SchemaMismatch
from headrace.log.plan import Span
from headrace.spark.options import parse_options
from headrace.spark.origin import FileOrigin
from headrace.spark.projection import projection, shown_schema
from headrace.spark.types import arrow_schema, as_spark, spark_schema, stored_schema

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def whole(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def counted(most: int, step: int = 1) -> st.SearchStrategy[int]:
    """Times in a type's own unit: `step` of them make one that Spark can tell apart."""
    return st.integers(-most // step, most // step).map(lambda n: n * step)


PLAIN: list[Typed] = [
    (pa.bool_(), st.booleans()),
    *((getattr(pa, f"int{bits}")(), whole(bits)) for bits in (8, 16, 32, 64)),
    *((getattr(pa, f"uint{bits}")(), whole(bits, signed=False)) for bits in (8, 16, 32, 64)),
    (pa.float16(), st.floats(width=16, allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    *((kind, st.text(max_size=9)) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, st.binary(max_size=9)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.integers(-10_000, 10_000)),
    (pa.date64(), st.integers(-10_000, 10_000).map(lambda day: day * 86_400_000)),
    (pa.timestamp("s"), counted(10**10)),
    (pa.timestamp("ms", "UTC"), counted(10**13)),
    (pa.timestamp("us", "Asia/Tokyo"), counted(10**16)),
    (pa.timestamp("ns"), counted(10**18, 1000)),
    (pa.timestamp("ns", "Europe/Berlin"), counted(10**18, 1000)),
    (pa.time32("s"), st.integers(0, 86_399)),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999).map(lambda us: us * 1000)),
    (pa.duration("s"), counted(10**8)),
    (pa.duration("ns"), counted(10**18, 1000)),
    (pa.decimal128(38, 18), st.decimals(-(10**15), 10**15, places=18)),
    (pa.decimal128(5, 0), st.decimals(-99999, 99999, places=0)),
    (pa.decimal256(20, 4), st.decimals(-(10**9), 10**9, places=4)),
    (pa.null(), st.none()),
]


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def lists(of: Typed) -> st.SearchStrategy[Typed]:
        several = st.lists(st.none() | of[1], max_size=3)
        pairs = st.lists(st.none() | of[1], min_size=2, max_size=2)
        kinds = [(pa.list_(of[0]), several), (pa.large_list(of[0]), several), (pa.list_(of[0], 2), pairs)]
        return st.sampled_from(kinds)

    def a_struct(of: tuple[Typed, Typed]) -> Typed:
        kind = pa.struct([pa.field("a", of[0][0]), pa.field("b", of[1][0])])
        return kind, st.fixed_dictionaries({"a": st.none() | of[0][1], "b": st.none() | of[1][1]})

    def a_map(of: Typed) -> Typed:
        return pa.map_(pa.string(), of[0]), st.lists(
            st.tuples(st.text(max_size=3), st.none() | of[1]), max_size=3
        )

    return st.one_of(inner.flatmap(lists), st.tuples(inner, inner).map(a_struct), inner.map(a_map))


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Field, pa.Array]:
    """A column of any type, possibly a slice of a longer one."""
    inside = st.sampled_from(PLAIN[:-1])  # not null: pyarrow itself cannot cast a slice of a struct with one
    kind, values = draw(st.sampled_from(PLAIN) | st.recursive(inside, nested, max_leaves=4))
    nullable = kind == pa.null() or draw(st.booleans())
    rows = draw(st.lists(st.none() | values if nullable else values, max_size=6))
    array = pa.array(rows, kind).slice(draw(st.integers(0, len(rows))))
    return pa.field("c", kind, nullable), array


def as_shown(value: Any, kind: pa.DataType) -> Any:
    """The value that Spark should have, told by the table in `headrace.spark.types`."""
    checks = pa.types
    if value is None:
        return None
    if checks.is_time(kind):
        return (value.hour * 3600 + value.minute * 60 + value.second) * 1_000_000 + value.microsecond
    if kind == pa.uint64():
        return Decimal(value)
    if checks.is_struct(kind):
        return {field.name: as_shown(value[field.name], field.type) for field in kind}
    if checks.is_map(kind):
        return [(as_shown(k, kind.key_type), as_shown(v, kind.item_type)) for k, v in value]
    if checks.is_list(kind) or checks.is_large_list(kind) or checks.is_fixed_size_list(kind):
        return [as_shown(each, kind.value_type) for each in value]
    return value


def check_shown(field: pa.Field, array: pa.Array) -> None:
    target = arrow_schema(spark_schema(pa.schema([field])))
    made = as_spark([array], target)
    made.validate(full=True)
    assert made.schema.equals(target)
    assert made.schema.field(0).nullable == field.nullable
    assert made.column(0).to_pylist() == [as_shown(value, field.type) for value in array.to_pylist()]


@given(columns())
@example((pa.field("c", pa.list_(pa.time64("ns"))), pa.array([[1000, None]], pa.list_(pa.time64("ns")))))
@example((pa.field("c", pa.list_(pa.time32("s"))), pa.array([[1], None], pa.list_(pa.time32("s")))))
@example((pa.field("c", pa.list_(pa.uint64())), pa.array([[(1 << 64) - 1]], pa.list_(pa.uint64()))))
def test_every_value_of_every_type_is_shown_as_it_is(column: tuple[pa.Field, pa.Array]) -> None:
    check_shown(*column)


@pytest.mark.parametrize(("kind", "values"), PLAIN, ids=[str(kind) for kind, _ in PLAIN])
@settings(max_examples=15)
@given(data=st.data())
def test_every_plain_type_has_a_type_in_spark(kind: pa.DataType, values: Any, data: st.DataObject) -> None:
    """Each for itself: the property above may not come to all of them."""
    check_shown(pa.field("c", kind), pa.array([data.draw(values), None], kind))


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.timestamp("ns"), 1), (pa.time64("ns"), 1), (pa.list_(pa.timestamp("ns")), [1])]
)
def test_what_spark_cannot_hold_is_an_error_and_never_rounded(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"'c' is a .*cannot be read as"):
        check_shown(pa.field("c", kind), pa.array([value], kind))


@pytest.mark.parametrize("kind", [pa.decimal256(50, 2), pa.decimal128(5, -2), pa.month_day_nano_interval()])
def test_a_type_that_spark_does_not_have_is_named_with_its_field(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=r"the field 'c' is a .*leave it out.*'columns'"):
        spark_schema(pa.schema([pa.field("c", kind)]))


@given(columns())
def test_a_stream_made_for_spark_stores_what_spark_gives(column: tuple[pa.Field, pa.Array]) -> None:
    """What was shown can be written to a stream that is made for it, and is shown the same again."""
    field, array = column
    shown = spark_schema(pa.schema([field]))
    stored = stored_schema(shown)
    given = as_spark([array], arrow_schema(shown))
    again = given.column(0).cast(stored.field(0).type)
    assert spark_schema(stored) == shown
    assert as_spark([again], arrow_schema(spark_schema(stored))).equals(given)


# --- projections, over a real stream

T0 = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("n", pa.uint32(), nullable=False),
        pa.field("text", pa.string()),
    ]
)
NAMES = ("at", "n", "text", "_index", "_key")


def row(n: int) -> dict[str, Any]:
    return {"at": T0 + dt.timedelta(seconds=n // 2), "n": n, "text": None if n % 3 else f"row {n}"}


def shown_row(n: int) -> dict[str, Any]:
    return {**row(n), "_index": n, "_key": row(n)["at"]}


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True),
    data=st.data(),
)
def test_any_columns_of_any_span_come_in_the_order_asked_for(sizes: Any, names: Any, data: Any) -> None:
    with temporary_store() as store:
        with store.stream("s", SCHEMA, order_by="at").publisher() as publisher:
            for size in sizes:
                publisher.publish_batch([row(publisher.next_index + at) for at in range(size)])
        start = data.draw(st.integers(0, sum(sizes)))
        stop = data.draw(st.integers(start, sum(sizes)))
        origin = FileOrigin(str(store.path), "s")
        options = parse_options({"path": "", "columns": ",".join(names)})
        made = projection(origin.about(), options)
        shown = pa.Table.from_batches(made.batches(origin.read(Span(start, stop), made.stored)), made.target)
    assert made.target.equals(arrow_schema(shown_schema(origin_about(), options)))
    assert shown.column_names == list(names)
    assert shown.to_pylist() == [{name: shown_row(n)[name] for name in names} for n in range(start, stop)]


def origin_about() -> Any:
    from headrace.spark.origin import About

    return About("", SCHEMA, "at")


def test_only_what_is_asked_for_is_read() -> None:
    """The choice of columns is what makes a read of few columns fast."""
    for names, stored in (("n", ("n",)), ("_index", ("at",)), ("_key,n", ("at", "n"))):
        options = parse_options({"path": "", "columns": names})
        assert projection(origin_about(), options).stored == stored


def test_the_key_of_a_stream_without_one_is_its_index(place: Path) -> None:
    with hr.open(place / "data") as store:
        publish_all(store.stream("s", Number), map(Number, range(5)))
        origin = FileOrigin(str(store.path), "s")
        made = projection(origin.about(), parse_options({"path": "", "withKey": "true", "withIndex": "true"}))
        shown = pa.Table.from_batches(made.batches(origin.read(Span(1, 4), made.stored)), made.target)
    assert shown.to_pydict() == {"n": [1, 2, 3], "_index": [1, 2, 3], "_key": [1, 2, 3]}


def test_the_batches_for_spark_are_neither_tiny_nor_too_large(store: hr.Store) -> None:
    """A thousand single entries go together; a large batch goes in pieces; no row is lost on the way."""
    stream = store.stream("s", pa.schema([pa.field("data", pa.binary(), nullable=False)]))
    with stream.publisher() as publisher:
        for n in range(300):
            publisher.publish_batch([{"data": b"%d" % n}])
        publisher.publish_batch(pa.table({"data": [bytes(1000)] * 40_000}))
        publisher.publish_batch(pa.table({"data": [b""] * 200_000}))
    origin = FileOrigin(str(store.path), "s")
    made = projection(origin.about(), parse_options({"path": ""}))
    batches = list(made.batches(origin.read(Span(0, 240_300), made.stored)))
    assert sum(batch.num_rows for batch in batches) == 240_300
    assert max(batch.num_rows for batch in batches) <= 1 << 16
    assert max(batch.nbytes for batch in batches) <= 20 << 20
    assert len(batches) < 20
    assert batches[0].column(0)[299].as_py() == b"299"
