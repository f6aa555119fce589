"""An entry that does not fit is refused on the spot, by the name of its field, and has changed nothing."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pytest

import headrace as hr
from headrace.stream import BadEntry

from .samples import Number, Order, order, values

AT = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Inner:
    deep: int


@dataclass
class SubInner(Inner):
    pass


@dataclass
class Everything:
    whole: int = 1
    real: float = 1.0
    yes: bool = True
    text: str = "t"
    raw: bytes = b"r"
    moment: dt.datetime = AT
    day: dt.date = AT.date()  # noqa: RUF009
    clock: dt.time = dt.time(1, 2)
    span: dt.timedelta = dt.timedelta(1)
    price: decimal.Decimal = decimal.Decimal("1.5")
    key: uuid.UUID = uuid.UUID(int=5)  # noqa: RUF009
    colour: Colour = Colour.RED
    choice: Literal["a", "b"] = "a"
    maybe: int | None = None
    some: list[int] = dataclasses.field(default_factory=list)
    fixed: tuple[str, ...] = ()
    many: set[int] = dataclasses.field(default_factory=set)
    table: dict[str, int] = dataclasses.field(default_factory=dict)
    inner: Inner = dataclasses.field(default_factory=lambda: Inner(1))
    small: Annotated[int, pa.int8()] = 1
    cents: Annotated[decimal.Decimal, pa.decimal128(5, 2)] = decimal.Decimal(1)


class Odd:
    """Something that fits no field."""

    def __repr__(self) -> str:
        return "odd"


WRONG: list[tuple[str, Any]] = [
    *[(field.name, None) for field in dataclasses.fields(Everything) if field.name != "maybe"],
    *[(field.name, Odd()) for field in dataclasses.fields(Everything)],
    ("whole", "1"),
    ("whole", 1.0),
    ("whole", 1 << 63),
    ("whole", -(1 << 63) - 1),
    ("real", "1.0"),
    ("real", 10**400),
    ("yes", 1),
    ("text", b"bytes"),
    ("text", "lone \ud800 surrogate"),
    ("raw", "text"),
    ("moment", dt.datetime(2024, 5, 1)),
    ("moment", dt.date(2024, 5, 1)),
    ("moment", 1714521600),
    ("moment", dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14)))),
    ("moment", dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14)))),
    ("day", AT),
    ("day", "2024-05-01"),
    ("clock", dt.time(1, 2, tzinfo=dt.UTC)),
    ("span", 5),
    ("span", dt.timedelta.max),
    ("span", dt.timedelta.min),
    ("price", 1.5),
    ("price", decimal.Decimal("NaN")),
    ("price", decimal.Decimal("Infinity")),
    ("price", decimal.Decimal("1E-19")),
    ("price", decimal.Decimal("1E+20")),
    ("price", decimal.Decimal("1E+99999999")),
    ("price", decimal.Decimal("0.1" + "0" * 100 + "1")),
    ("key", str(uuid.UUID(int=5))),
    ("colour", "red"),
    ("choice", "c"),
    ("choice", ["a"]),
    ("maybe", "1"),
    ("maybe", 1 << 64),
    ("some", (1, 2)),
    ("some", [1, "2"]),
    ("some", [1, None]),
    ("some", [1 << 63]),
    ("fixed", ["a"]),
    ("fixed", ("\udfff",)),
    ("many", frozenset({1})),
    ("many", {None}),
    ("table", {"a": "b"}),
    ("table", {1: 1}),
    ("table", {"a": None}),
    ("table", [("a", 1)]),
    ("inner", {"deep": 1}),
    ("inner", Inner("x")),  # type: ignore[arg-type]
    ("inner", SubInner(1)),
    ("small", 128),
    ("cents", decimal.Decimal("0.001")),
    ("cents", decimal.Decimal("1000")),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda value: repr(value)[:30])
def test_a_wrong_value_is_refused_with_the_name_of_its_field(
    store: hr.Store, field: str, value: object
) -> None:
    stream = store.stream("s", Everything)
    good = Everything()
    with stream.publisher() as publisher:
        assert publisher.publish(good) == 0
        with pytest.raises(BadEntry, match=field):
            publisher.publish(replace(good, **{field: value}))  # type: ignore[arg-type]
        assert publisher.next_index == 1
        assert publisher.publish(good) == 1
        publisher.flush()
    assert values(stream) == [good, good]


def test_a_nested_wrong_value_is_refused_with_its_whole_path(store: hr.Store) -> None:
    stream = store.stream("s", Everything)
    with stream.publisher() as publisher, pytest.raises(BadEntry, match=r"inner.*deep"):
        publisher.publish(replace(Everything(), inner=Inner("x")))  # type: ignore[arg-type]


def test_a_wrong_entry_between_good_ones_harms_none_of_them(store: hr.Store) -> None:
    stream = store.stream("s", Everything)
    good, bad = 0, 0
    with stream.publisher() as publisher:
        for field, value in WRONG * 3:
            assert publisher.publish(replace(Everything(), whole=good)) == good
            good += 1
            try:
                publisher.publish(replace(Everything(), **{field: value}))
            except BadEntry:
                bad += 1
    assert bad == len(WRONG) * 3
    assert [value.whole for value in values(stream)] == list(range(good))


class Sub(Order):
    pass


@dataclass(frozen=True)
class Point:
    x: int


@dataclass(frozen=True)
class Point3(Point):
    z: int = 0


class Other(msgspec.Struct):
    n: int


@pytest.mark.parametrize("entry", [Point3(1), {"x": 1}, 1, None, (1,), Other(1), Point], ids=repr)
def test_only_the_declared_class_itself_is_taken(store: hr.Store, entry: object) -> None:
    """An object of a subclass would come back as one of its base: it is refused rather than changed."""
    stream = store.stream("s", Point)
    with stream.publisher() as publisher:
        with pytest.raises(BadEntry, match="Point"):
            publisher.publish(entry)
        assert publisher.publish(Point(1)) == 0


def test_a_subclass_can_be_named_as_a_variant_of_its_own(store: hr.Store) -> None:
    stream = store.stream("s", Point | Point3)
    with stream.publisher() as publisher:
        publisher.publish(Point3(1, 2))
        publisher.publish(Point(1))
    assert values(stream) == [Point3(1, 2), Point(1)]


def test_an_object_that_lost_a_field_is_refused(store: hr.Store) -> None:
    stream = store.stream("s", Inner)
    broken = Inner(1)
    del broken.deep
    with stream.publisher() as publisher:
        with pytest.raises((BadEntry, AttributeError), match="deep"):
            publisher.publish(broken)
        assert publisher.publish(Inner(2)) == 0
    assert values(stream) == [Inner(2)]


def test_a_required_field_of_a_variant_may_not_be_none(store: hr.Store) -> None:
    stream = store.stream("s", Inner | Point)
    with stream.publisher() as publisher:
        with pytest.raises(BadEntry, match="deep"):
            publisher.publish(Inner(None))  # type: ignore[arg-type]
        with pytest.raises(BadEntry, match="x"):
            publisher.publish(Point("1"))  # type: ignore[arg-type]
        assert publisher.publish(Inner(1)) == 0


# --- rows of an Arrow schema

ROWS = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False),
        pa.field("b", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("small", pa.int8()),
    ]
)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({}, "a"),
        ({"a": None}, "a"),
        ({"b": "x"}, "a"),
        ({"a": 1, "c": 2}, "c"),
        ({"a": 1, "b": "x", "at": AT, "small": 1, "c": 2}, "c"),
        ({"a": "1"}, "a"),
        ({"a": 1, "b": 5}, "b"),
        ({"a": 1, "b": "\ud800"}, "b"),
        ({"a": 1, "at": dt.datetime(2024, 1, 1)}, "at"),
        ({"a": 1, "at": 5}, "at"),
        ({"a": 1, "small": 128}, "small"),
        ({"a": 1 << 63}, "a"),
        ([1], "dict"),
        (b"x", "dict"),
    ],
    ids=repr,
)
def test_a_row_that_does_not_fit_its_schema_is_refused(store: hr.Store, row: Any, named: str) -> None:
    stream = store.stream("s", ROWS)
    good = {"a": 1, "b": None, "at": AT, "small": None}
    with stream.publisher() as publisher:
        with pytest.raises(BadEntry, match=named):
            publisher.publish(row)
        assert publisher.publish({"a": 1, "at": AT}) == 0
        publisher.flush()
    assert values(stream) == [good]


def test_only_bytes_go_into_a_stream_of_bytes(store: hr.Store) -> None:
    stream = store.stream("s", bytes)
    with stream.publisher() as publisher:
        for wrong in ("text", None, 5, [b"x"]):
            with pytest.raises(BadEntry):
                publisher.publish(wrong)
        for n, right in enumerate((b"a", bytearray(b"b"), memoryview(b"c"), b"")):
            assert publisher.publish(right) == n
    assert values(stream) == [b"a", b"b", b"c", b""]


def test_a_changed_list_does_not_change_what_was_published(store: hr.Store) -> None:
    Holder = dataclasses.make_dataclass("Holder", [("some", list[int]), ("raw", bytes)])
    stream = store.stream("s", Holder)
    holder = Holder([1], bytearray(b"ab"))
    with stream.publisher() as publisher:
        publisher.publish(holder)
        holder.some.append(2)
        holder.raw[0] = 0
    assert [(value.some, value.raw) for value in values(stream)] == [([1], b"ab")]


def test_what_is_refused_in_the_middle_leaves_an_order_key_alone(store: hr.Store) -> None:
    stream = store.stream("s", Order, order_by="at")
    with stream.publisher() as publisher:
        publisher.publish(order(1))
        with pytest.raises(BadEntry):
            publisher.publish(replace(order(9), amount="x"))  # type: ignore[arg-type]
        assert publisher.publish(order(2)) == 1  # the key 9 was never there


def test_a_subclass_of_a_declared_class_without_fields_is_refused_too(store: hr.Store) -> None:
    with store.stream("s", Number).publisher() as publisher, pytest.raises(BadEntry):
        publisher.publish(type("Number", (Number,), {})(5))
