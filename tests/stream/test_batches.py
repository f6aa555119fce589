"""Whole tables: from all that speaks Arrow, all or none, and never what listening could not give back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernel.errors import SchemaMismatch
from headrace.stream import BadEntry, Published

from .samples import T0, Number, values

UTC = dt.UTC


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Item:
    n: int
    text: str
    real: float = 0.0
    at: dt.datetime = T0
    maybe: int | None = None


COLUMNS: dict[str, Any] = {
    "n": [1, 2],
    "text": ["a", "b"],
    "real": [0.5, 1.5],
    "at": [T0, T0],
    "maybe": [None, 7],
}
ITEMS = [Item(1, "a", 0.5, T0, None), Item(2, "b", 1.5, T0, 7)]


def published(store: hr.Store, given: Any, kind: Any = Item) -> list[Any]:
    stream = store.stream("s", kind)
    with stream.publisher() as publisher:
        publisher.publish_batch(given)
    return values(stream)


class Capsule:
    """Something foreign that speaks Arrow, as polars and DuckDB frames do."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


TABLE = pa.table(COLUMNS)
GIVEN = {
    "a table": TABLE,
    "a batch": TABLE.to_batches()[0],
    "a reader": TABLE.to_reader(),
    "chunks": pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1), TABLE.slice(2)]),
    "a slice": pa.concat_tables([TABLE, TABLE]).slice(2, 2),
    "something foreign": Capsule(TABLE),
    "rows": TABLE.to_pylist(),
    "columns in another order": TABLE.select(["maybe", "at", "text", "n", "real"]),
}


@pytest.mark.parametrize("what", GIVEN)
def test_tables_of_all_makes_are_taken(store: hr.Store, what: str) -> None:
    given = GIVEN[what] if what != "a reader" else TABLE.to_reader()
    assert published(store, given) == ITEMS


def test_a_pandas_frame_is_taken(store: hr.Store) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({**COLUMNS, "maybe": pandas.array([None, 7], dtype="Int64")}, index=[5, 6])
    assert published(store, frame) == ITEMS


def test_a_polars_frame_is_taken(store: hr.Store) -> None:
    polars = pytest.importorskip("polars")
    assert published(store, polars.DataFrame(COLUMNS)) == ITEMS


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_series_is_no_table(store: hr.Store, library: str) -> None:
    series = pytest.importorskip(library).Series([1, 2])
    with pytest.raises(hr.Refused, match="Series"):
        published(store, series, Number)


def test_a_column_that_may_be_null_can_be_left_out(store: hr.Store) -> None:
    assert [item.maybe for item in published(store, TABLE.drop_columns(["maybe"]))] == [None, None]


def test_likes_are_cast_if_no_value_changes(store: hr.Store) -> None:
    like = pa.table(
        {
            "n": pa.array([1, 2], pa.uint8()),
            "text": pa.array(["a", "b"]).dictionary_encode(),
            "real": pa.array([0.5, 1.5], pa.float32()),
            "at": pa.array([T0, T0], pa.timestamp("s", "Europe/Berlin")),
            "maybe": pa.array([None, 7], pa.int16()),
        }
    )
    assert published(store, like) == ITEMS


def changed(**columns: Any) -> pa.Table:
    return pa.table({**COLUMNS, **columns})


REFUSED: dict[str, tuple[str, Any]] = {
    "an unknown column": ("other", changed(other=[1, 2])),
    "a missing column": ("text", TABLE.drop_columns(["text"])),
    "a null": ("text", changed(text=["a", None])),
    "all null": ("n", changed(n=pa.nulls(2))),
    "text as a number": ("n", changed(n=["1", "2"])),
    "a number as text": ("text", changed(text=[1, 2])),
    "a broken number": ("n", changed(n=[1.5, 2.5])),
    "a number too large": ("n", changed(n=pa.array([1, 1 << 63], pa.uint64()))),
    "a number that a float cannot hold": ("real", changed(real=[1, (1 << 60) + 1])),
    "nanoseconds": ("at", changed(at=pa.array([1, 2], pa.timestamp("ns", "UTC")))),
    "a year that Python has not": ("at", changed(at=pa.array([0, 1 << 60], pa.timestamp("us", "UTC")))),
    "a row with an unknown key": ("other", [*TABLE.to_pylist(), {"n": 1, "text": "a", "other": 1}]),
    "a row with a missing key": ("text", [*TABLE.to_pylist(), {"n": 1}]),
    "a row with a wrong value": ("n", [*TABLE.to_pylist(), {**TABLE.to_pylist()[0], "n": "x"}]),
    "two columns of a name": ("text", pa.table([*TABLE.columns, TABLE["n"]], [*TABLE.column_names, "text"])),
    "not a table": ("int", 5),
    "an object": ("Item", ITEMS[0]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_whole_with_the_name_of_the_column(store: hr.Store, what: str) -> None:
    named, given = REFUSED[what]
    stream = store.stream("s", Item)
    with stream.publisher() as publisher:
        publisher.publish(ITEMS[0])
        with pytest.raises(hr.Refused, match=named):
            publisher.publish_batch(given)
        assert publisher.next_index == 1
        assert publisher.publish_batch(TABLE) == Published(1, 3)
    assert values(stream) == [ITEMS[0], *ITEMS]


def test_rows_that_say_more_than_the_first_one_lose_nothing(store: hr.Store) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])
    rows = [{"a": 1}, {"a": 2, "b": "x"}, {"b": "y", "a": 3}]
    assert published(store, rows, schema) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": 3, "b": "y"}]


@pytest.mark.parametrize(
    "empty", [[], TABLE.slice(0, 0), TABLE.schema.empty_table()], ids=["rows", "slice", "table"]
)
def test_nothing_can_be_published(store: hr.Store, empty: Any) -> None:
    stream = store.stream("s", Item)
    with stream.publisher() as publisher:
        publisher.publish(ITEMS[0])
        assert publisher.publish_batch(empty) == Published(1, 1)
        assert publisher.publish(ITEMS[1]) == 1
    assert values(stream) == ITEMS


def test_entries_and_batches_keep_the_order_of_the_calls(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    with stream.publisher() as publisher:
        for base in range(0, 300, 3):
            assert publisher.publish(Number(base)) == base
            batch = publisher.publish_batch(pa.table({"n": [base + 1, base + 2]}))
            assert batch == Published(base + 1, base + 3)
    assert [value.n for value in values(stream)] == list(range(300))


# --- whatever is let in can be given back


@dataclass
class Inner:
    deep: int


@dataclass
class Fancy:
    colour: Colour
    choice: Literal[1, 2]
    some: list[int]
    table: dict[str, int]
    inner: Inner
    kinds: list[Colour]
    day: dt.date
    price: decimal.Decimal


FANCY: dict[str, Any] = {
    "colour": pa.array(["red"]),
    "choice": pa.array([1]),
    "some": pa.array([[1, 2]]),
    "table": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "inner": pa.array([{"deep": 1}]),
    "kinds": pa.array([["blue"]]),
    "day": pa.array([dt.date(2024, 5, 1)]),
    "price": pa.array([decimal.Decimal("1.50")]),
}


def test_nested_columns_are_taken_as_other_tools_make_them(store: hr.Store) -> None:
    """Arrow's own inference makes all of it nullable; that is no reason to refuse what has no nulls."""
    expected = Fancy(
        Colour.RED, 1, [1, 2], {"a": 1}, Inner(1), [Colour.BLUE], dt.date(2024, 5, 1), decimal.Decimal("1.5")
    )
    assert published(store, pa.table(FANCY), Fancy) == [expected]


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("colour", pa.array(["green"])),
        ("choice", pa.array([3])),
        ("some", pa.array([[1, None]])),
        ("table", pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64()))),
        ("inner", pa.array([{"deep": None}], pa.struct([("deep", pa.int64())]))),
        ("inner", pa.array([{"deep": 1, "unknown": 2}])),
        ("inner", pa.array([{"other": 1}])),
        (r"inner\.deep", pa.array([{"deep": "1"}])),
        ("some", pa.array([["1"]])),
        ("table", pa.array([[("a", "1")]], pa.map_(pa.string(), pa.string()))),
        ("kinds", pa.array([["blue", "green"]])),
        ("kinds", pa.array([[None]], pa.list_(pa.string()))),
        ("day", pa.array([1 << 30], pa.int32()).view(pa.date32())),
        ("price", pa.array([decimal.Decimal("1E-30")])),
    ],
)
def test_a_value_that_no_entry_could_have_is_refused(store: hr.Store, field: str, column: pa.Array) -> None:
    stream = store.stream("s", Fancy)
    with stream.publisher() as publisher:
        with pytest.raises(hr.Refused, match=field):
            publisher.publish_batch(pa.table({**FANCY, field.partition("\\")[0]: column}))
        publisher.publish_batch(pa.table(FANCY))
    assert len(values(stream)) == 1


@dataclass
class Packed:
    colour: Colour
    some: list[int]
    inner: Inner
    inners: list[Inner]
    kinds: list[Colour]
    day: dt.date
    at: dt.datetime
    price: decimal.Decimal
    raw: bytes
    id: uuid.UUID


def test_what_was_read_goes_back_in_as_a_frame(store: hr.Store) -> None:
    """Frames have layouts of their own: views, large lists, categories, nanoseconds. (polars has no maps.)"""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    packed = Packed(
        Colour.RED, [1, 2], Inner(1), [Inner(2), Inner(3)], [Colour.BLUE], dt.date(2024, 5, 1), T0,
        decimal.Decimal("1.5"), b"raw", uuid.UUID(int=5),
    )  # fmt: skip
    stream = store.stream("s", Packed)
    with stream.publisher() as publisher:
        publisher.publish(packed)
        publisher.flush()
        table = pa.Table.from_batches([batch.records for batch in stream.listen_batches()])
        for frame in (
            table.to_pandas(),
            table.to_pandas().assign(colour=pandas.Categorical(["red"])),
            table.to_pandas().assign(at=lambda given: given["at"].astype("datetime64[ns, UTC]")),
            polars.from_arrow(table),
            polars.from_arrow(table).with_columns(polars.col("colour").cast(polars.Categorical)),
        ):
            publisher.publish_batch(frame)
    assert values(stream) == [packed] * 6


def test_batches_of_a_union_say_the_class_of_each_row(store: hr.Store) -> None:
    Noted = dataclasses.make_dataclass("Noted", [("colour", str), ("n", int)])
    Painted = dataclasses.make_dataclass("Painted", [("colour", Colour)])
    stream = store.stream("s", Painted | Noted)
    table = {"_type": ["Noted", "Painted"], "colour": ["any", "red"], "n": [1, None]}
    with stream.publisher() as publisher:
        publisher.publish_batch(pa.table(table))
        for wrong, named in (
            ({**table, "_type": ["Noted", "Nobody"]}, "Nobody"),
            ({**table, "_type": ["Noted", None]}, "_type"),
            ({**table, "n": [None, None]}, "n"),
            ({**table, "colour": ["any", None]}, "colour"),
            ({**table, "colour": ["any", "any"]}, "colour"),
        ):
            with pytest.raises(hr.Refused, match=named):
                publisher.publish_batch(pa.table(wrong))
    assert values(stream) == [Noted("any", 1), Painted(Colour.RED)]


def test_a_batch_brings_its_computed_keys_along(store: hr.Store) -> None:
    stream = store.stream("s", Number, order_by=lambda number: number.n * 10)
    with stream.publisher() as publisher:
        with pytest.raises(hr.Refused, match="_key"):
            publisher.publish_batch(pa.table({"n": [1, 2]}))
        publisher.publish_batch(pa.table({"n": [1, 2], "_key": [10, 20]}))
        publisher.publish(Number(3))
    assert [entry.key for entry in stream.listen()] == [10, 20, 30]


def test_bytes_come_as_one_column(store: hr.Store) -> None:
    assert published(store, pa.table({"data": [b"a", b"b"]}), bytes) == [b"a", b"b"]


def test_a_batch_for_a_row_of_none_is_not_an_entry(store: hr.Store) -> None:
    with store.stream("s", Item).publisher() as publisher, pytest.raises((BadEntry, hr.Refused)):
        publisher.publish_batch([None])


def test_a_batch_that_fits_as_it_is_is_published_as_it_is(store: hr.Store) -> None:
    stream = store.stream("s", pa.schema([pa.field("n", pa.int64(), nullable=False), ("text", pa.string())]))
    with stream.publisher() as publisher:
        batch = pa.RecordBatch.from_pydict({"n": [1, 2], "text": ["a", None]}, schema=stream.schema)
        assert publisher.publish_batch(batch) == Published(0, 2)
        columns = [pa.array([1, None]), pa.nulls(2, pa.string())]
        wrong = pa.RecordBatch.from_arrays(columns, schema=stream.schema)
        with pytest.raises(SchemaMismatch, match="'n' may not be null, and is in 1 rows"):
            publisher.publish_batch(wrong)
    assert values(stream) == [{"n": 1, "text": "a"}, {"n": 2, "text": None}]


@dataclass(frozen=True)
class Painted:
    colour: Colour


@dataclass(frozen=True)
class Dated:
    at: dt.datetime


@dataclass(frozen=True)
class Inside:
    numbers: list[int]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (Painted, pa.array(["green"])),
        (Dated, pa.array([1 << 62], pa.timestamp("us", "UTC"))),
        (Inside, pa.array([[None]], pa.list_(pa.int64()))),
    ],
)
def test_a_batch_of_the_right_type_with_wrong_values_is_refused(
    store: hr.Store, kind: type, column: pa.Array
) -> None:
    stream = store.stream("s", kind)
    field = stream.schema.field(0)
    column = pa.Array.from_buffers(
        field.type, 1, column.buffers()[: field.type.num_buffers], children=_inside(column)
    )
    with stream.publisher() as publisher, pytest.raises(BadEntry):
        publisher.publish_batch(pa.RecordBatch.from_arrays([column], schema=stream.schema))
    assert values(stream) == []


def _inside(column: pa.Array) -> list[pa.Array] | None:
    return [column.values] if pa.types.is_list(column.type) else None
