"""Any entry of any supported type comes back equal, and of the same class."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NewType, Optional

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.kernel.errors import SchemaMismatch

from .samples import temporary_store, values

UTC = dt.UTC


# --- what a field can be: an annotation, and values of it


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blüe"


class Level(enum.IntEnum):
    LOW = -1
    HIGH = 1 << 40


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"
    THREE = (1, 2)
    YES = True


class Flavour(enum.StrEnum):
    SWEET = "sweet"
    SOUR = "sour"


def storable(moment: dt.datetime) -> bool:
    """Whether its instant is one in UTC too; at both ends of the calendar there are some that are not."""
    try:
        moment.astimezone(UTC)
    except OverflowError:
        return False
    return True


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
WIDE = st.timezones() | st.builds(
    dt.timezone,
    st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)),
)
MOMENTS = st.datetimes(timezones=st.just(UTC) | WIDE).filter(storable)
SPANS = st.timedeltas(dt.timedelta(microseconds=-(1 << 63)), dt.timedelta(microseconds=(1 << 63) - 1))
DECIMALS = st.builds(
    lambda whole, scale: decimal.Decimal(whole).scaleb(-scale, decimal.Context(prec=60)),
    st.integers(-(10**20) + 1, 10**20 - 1),
    st.integers(0, 18),
)
Kind = tuple[Any, st.SearchStrategy[Any]]

KEYS: list[Kind] = [
    (int, INT64),
    (str, TEXT),
    (bytes, st.binary(max_size=8)),
    (bool, st.booleans()),
    (dt.date, st.dates()),
    (uuid.UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (decimal.Decimal, DECIMALS),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
]
PLAIN: list[Kind] = [
    *KEYS,
    (float, st.floats(allow_nan=False)),
    (dt.datetime, MOMENTS),
    (dt.datetime, st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2096, 1, 1), timezones=st.just(UTC))),
    (dt.time, st.times()),
    (dt.timedelta, SPANS),
    (Mixed, st.sampled_from(Mixed)),
    (Flavour, st.sampled_from(Flavour)),
    (Literal[1, 2, -3], st.sampled_from([1, 2, -3])),
    (NewType("UserId", int), INT64),
    (Annotated[int, pa.int8()], st.integers(-128, 127)),
    (Annotated[int, pa.uint32()], st.integers(0, (1 << 32) - 1)),
    (Annotated[float, pa.float32()], st.floats(width=32, allow_nan=False)),
    (Annotated[str, pa.large_string()], TEXT),
    (Annotated[bytes, pa.binary(3)], st.binary(min_size=3, max_size=3)),
    (Annotated[bytes, pa.large_binary()], st.binary(max_size=8)),
    (
        Annotated[decimal.Decimal, pa.decimal128(9, 2)],
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda cents: decimal.Decimal(cents).scaleb(-2)),
    ),
    (
        Annotated[decimal.Decimal, pa.decimal256(70, 30)],
        st.integers(-(10**69), 10**69).map(
            lambda number: decimal.Decimal(number).scaleb(-30, decimal.Context(prec=80))
        ),
    ),
    (Annotated[int, "only a note"], INT64),
]
_numbers = itertools.count()


def containers(kinds: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    few = 3
    return st.one_of(
        kinds.map(lambda kind: (Optional[kind[0]], st.none() | kind[1])),  # noqa: UP045
        kinds.map(lambda kind: (list[kind[0]], st.lists(kind[1], max_size=few))),  # type: ignore[name-defined]
        kinds.map(lambda kind: (tuple[kind[0], ...], st.lists(kind[1], max_size=few).map(tuple))),
        st.sampled_from(KEYS).map(lambda kind: (set[kind[0]], st.sets(kind[1], max_size=few))),
        st.sampled_from(KEYS).map(lambda kind: (frozenset[kind[0]], st.frozensets(kind[1], max_size=few))),
        st.tuples(st.sampled_from(KEYS), kinds).map(
            lambda pair: (
                dict[pair[0][0], pair[1][0]],  # type: ignore[name-defined,misc]
                st.dictionaries(pair[0][1], pair[1][1], max_size=few),
            )
        ),
        records(kinds),
        st.lists(records(kinds), min_size=2, max_size=3).map(
            lambda several: (
                several[0][0] | several[1][0] | several[-1][0],
                st.one_of(*(values for _, values in several)),
            )
        ),
    )


@st.composite
def records(draw: Callable[..., Any], kinds: st.SearchStrategy[Kind], name: str | None = None) -> Kind:
    """A class of any shape, and objects of it. Field names are numbered: those of a union do not clash."""
    number = next(_numbers)
    name = name or f"Record{number}"
    fields = [
        (f"f{number}_{at}", *kind) for at, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=4)))
    ]
    shape = draw(
        st.fixed_dictionaries({"frozen": st.booleans(), "kw_only": st.booleans(), "slots": st.booleans()})
    )
    inherited = draw(st.integers(0, len(fields) - 1))
    pairs = [(field, kind) for field, kind, _ in fields]
    cls: type
    if draw(st.booleans()):
        cls = _dataclass(name, pairs, inherited, shape)
    else:
        shape = {"frozen": shape["frozen"], "kw_only": shape["kw_only"], "gc": shape["slots"]}
        base = msgspec.defstruct(f"Base{number}", pairs[:inherited], **shape) if inherited else None
        cls = msgspec.defstruct(name, pairs[inherited:], bases=(base,) if base else None, **shape)
    made = st.builds(cls, **{field: strategy for field, _, strategy in fields})
    return cls, made


def _dataclass(name: str, pairs: list[Any], inherited: int, shape: dict[str, bool]) -> type:
    bases: tuple[type, ...] = ()
    if inherited:
        bases = (dataclasses.make_dataclass(f"{name}Base", pairs[:inherited], **shape),)
    return dataclasses.make_dataclass(name, pairs[inherited:], bases=bases, **shape)


KINDS = st.recursive(st.sampled_from(PLAIN), containers, max_leaves=4)


@st.composite
def streams(draw: Callable[..., Any]) -> tuple[Any, list[Any]]:
    """A type, and some entries of it."""
    several = draw(st.lists(records(KINDS), min_size=1, max_size=3))
    kind = several[0][0]
    for cls, _ in several[1:]:
        kind = kind | cls
    return kind, draw(st.lists(st.one_of(*(made for _, made in several)), min_size=1, max_size=5))


def same(value: Any) -> Any:
    """What must be equal. A datetime keeps its instant, not its zone; all else is the same to a bit."""
    if isinstance(value, dt.datetime):
        return "datetime", value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, list | tuple):
        return type(value), [same(each) for each in value]
    if isinstance(value, set | frozenset):
        return type(value), {same(each) for each in value}
    if isinstance(value, dict):
        return dict, [(same(key), same(each)) for key, each in value.items()]
    if isinstance(value, msgspec.Struct):
        return type(value), [same(getattr(value, name)) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return type(value), [same(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return type(value), value


def shuffled_back(stream: hr.Stream) -> list[Any]:
    return [same(value) for value in values(stream)]


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(streams(), st.sampled_from(["none", "lz4", "zstd"]))
def test_any_entry_of_any_type_comes_back_equal(made: tuple[Any, list[Any]], compression: Any) -> None:
    kind, entries = made
    expected = [same(entry) for entry in entries]
    with temporary_store() as store:
        stream = store.stream("one-by-one", kind, settings=hr.Settings(compression=compression))
        with stream.publisher() as publisher:
            for at, entry in enumerate(entries):
                assert publisher.publish(entry) == at
        assert shuffled_back(stream) == expected

        again = store.stream("by-batch", kind)
        with again.publisher() as publisher:
            publisher.publish_batch(pa.Table.from_batches(each.records for each in stream.listen_batches()))
        assert shuffled_back(again) == expected
        assert shuffled_back(store.stream("by-batch", kind)) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(st.sampled_from(PLAIN), min_size=1, max_size=4), st.sampled_from(["none", "zstd"]))
def test_any_entry_comes_back_equal_after_its_type_has_grown(
    data: st.DataObject, fields: list[Kind], compression: Any
) -> None:
    """Entries of a class with few fields, then of one with more, all read through the larger one."""
    new = data.draw(KINDS)
    before = [(f"a{at}", kind) for at, (kind, _) in enumerate(fields)]
    small = dataclasses.make_dataclass("Growing", before)
    large = dataclasses.make_dataclass("Growing", [*before, ("new", Optional[new[0]])])  # noqa: UP045
    rows = data.draw(st.lists(st.tuples(*(strategy for _, strategy in fields)), min_size=1, max_size=3))
    more = data.draw(st.lists(st.none() | new[1], min_size=1, max_size=3))
    with temporary_store() as store:
        with store.stream("s", small, settings=hr.Settings(compression=compression)).publisher() as publisher:
            for row in rows:
                publisher.publish(small(*row))
        with store.stream("s", large).publisher() as publisher:
            for extra in more:
                publisher.publish(large(*rows[0], extra))
        old, now = store.stream("s", small), store.stream("s", large)
        expected = [*(large(*row, None) for row in rows), *(large(*rows[0], extra) for extra in more)]
        assert shuffled_back(now) == [same(each) for each in expected]
        seen_by_old = [*(small(*row) for row in rows), *(small(*rows[0]) for _ in more)]
        assert shuffled_back(old) == [same(each) for each in seen_by_old]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=1))
def test_datetimes_of_any_year_keep_their_microseconds(moments: list[dt.datetime]) -> None:
    """The fast way from Arrow to datetimes goes through floats: it must be exact wherever it is taken."""
    from headrace.stream.columns import from_array, to_array
    from headrace.stream.types import field_type

    kind = field_type(dt.datetime, "at")
    assert from_array(to_array(moments, kind), kind) == moments


def test_the_fast_way_of_datetimes_is_exact_on_both_sides_of_its_end() -> None:
    from headrace.stream.columns import from_array, to_array
    from headrace.stream.types import field_type

    kind = field_type(dt.datetime, "at")
    epoch = dt.datetime(1970, 1, 1, tzinfo=UTC)
    for base in (0, 1, 10**6 - 1, 2**52, 4 * 10**15 - 3, 4 * 10**15, 2**53, 10**17):
        moments = [epoch + dt.timedelta(microseconds=base + step) for step in range(-3 if base else 0, 1000)]
        for alone in moments:
            assert from_array(to_array([alone], kind), kind) == [alone]
        assert from_array(to_array(moments, kind), kind) == moments
        optional = field_type(dt.datetime | None, "f")
        for some in (moments[:100], moments):  # few and many, which go different ways
            gaps = [None, *some, None]
            assert from_array(to_array(some, kind), kind) == some
            assert from_array(to_array(gaps, optional), optional) == gaps
    assert from_array(to_array([], kind), kind) == []


# --- shapes of classes that a generator does not come to


class Clipped(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        self.n = min(self.n, 10)


@dataclass
class Stamped:
    n: int
    twice: int = dataclasses.field(init=False)
    limit: ClassVar[int] = 3

    def __post_init__(self) -> None:
        self.twice = 2 * self.n


@dataclass(frozen=True)
class Checked:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("negative")


@dataclass(slots=True, weakref_slot=True)
class Weak:
    n: int


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclass
class Point3(Point):
    z: int = 0


class Renamed(msgspec.Struct, rename="camel", tag="renamed", omit_defaults=True, array_like=True):
    first_name: str
    last_name: str = ""


class Late(msgspec.Struct):
    a: int = 1
    b: "Point | None" = None  # noqa: UP037


SHAPES = [
    Clipped(11),
    Stamped(4),
    Checked(3),
    Weak(5),
    Point(1),
    Point(1, 2, ["a"]),
    Point3(1, 2, [], 3),
    Renamed("Ann"),
    Late(),
    Late(2, Point(3)),
]


@pytest.mark.parametrize("entry", SHAPES, ids=lambda entry: repr(entry))
def test_classes_of_all_shapes_come_back_as_they_were(store: hr.Store, entry: Any) -> None:
    stream = store.stream("s", type(entry))
    with stream.publisher() as publisher:
        publisher.publish(entry)
    (back,) = values(stream)
    assert same(back) == same(entry)


def test_making_an_entry_again_does_not_check_it_again(store: hr.Store) -> None:
    """As copying does not. The rules may be stricter now than when it was published."""
    stream = store.stream("s", Checked)
    with stream.publisher() as publisher:
        publisher.publish_batch(pa.table({"n": [-5]}))
    (back,) = values(stream)
    assert (type(back), back.n) == (Checked, -5)


def test_what_goes_into_a_str_field_is_its_text_even_if_it_is_an_enum(store: hr.Store) -> None:
    class Mode(str, enum.Enum):  # noqa: UP042
        FAST = "fast"

    Text = dataclasses.make_dataclass("Text", [("text", str), ("texts", list[str])])
    stream = store.stream("s", Text)
    with stream.publisher() as publisher:
        publisher.publish(Text(Mode.FAST, [Mode.FAST]))
    assert [(each.text, each.texts) for each in values(stream)] == [("fast", ["fast"])]


@pytest.mark.parametrize(
    "number",
    ["1." + "0" * 80, "0E+50", "0E-50", "-0", "1E+19", "99999999999999999999.999999999999999999", "1E-18"],
)
def test_decimals_are_stored_by_their_value_however_they_are_written(store: hr.Store, number: str) -> None:
    Price = dataclasses.make_dataclass("Price", [("amount", decimal.Decimal)])
    stream = store.stream("s", Price)
    with stream.publisher() as publisher:
        publisher.publish(Price(decimal.Decimal(number)))
    assert [price.amount for price in values(stream)] == [decimal.Decimal(number)]


def test_variants_may_give_one_column_different_python_types(store: hr.Store) -> None:
    """Both are strings in Arrow; each variant checks and gives back its own."""
    Painted = dataclasses.make_dataclass("Painted", [("what", Colour), ("where", list[int])])
    Noted = dataclasses.make_dataclass("Noted", [("what", str), ("where", tuple[int, ...])])
    entries = [Painted(Colour.RED, [1]), Noted("anything", (2,)), Noted("red", ()), Painted(Colour.BLUE, [])]
    for name, kind in (("a", Painted | Noted), ("b", Noted | Painted)):
        stream = store.stream(name, kind)
        with stream.publisher() as publisher:
            for entry in entries:
                publisher.publish(entry)
        assert [same(value) for value in values(stream)] == [same(entry) for entry in entries]


# --- types that cannot be stored are refused when the stream is declared


@dataclass
class Node:
    n: int
    child: "Node | None" = None  # noqa: UP037


def _class(**fields: Any) -> type:
    return dataclasses.make_dataclass("Odd", list(fields.items()))


_Twin1 = dataclasses.make_dataclass("Twin", [("a", int)])
_Twin2 = dataclasses.make_dataclass("Twin", [("b", int)])


class Huge(enum.Enum):
    A = 1 << 70


UNSTORABLE: dict[str, Any] = {
    "object": _class(odd=object),
    "Any": _class(odd=Any),
    "a list of nothing": _class(odd=list),
    "a fixed tuple": _class(odd=tuple[int, str]),
    "int | str": _class(odd=int | str),
    "complex": _class(odd=complex),
    "mixed literals": _class(odd=Literal["a", 1]),
    "an optional map key": _class(odd=dict[int | None, int]),
    "nested twins": _class(odd=_Twin1 | _Twin2),
    "an enum beyond 64 bits": _class(odd=Huge),
    "a class that holds itself": Node,
    "a private name": _class(_odd=int),
    "no fields": dataclasses.make_dataclass("Odd", []),
    "twins": _Twin1 | _Twin2,
    "clashing variants": _class(odd=int) | dataclasses.make_dataclass("Even", [("odd", str)]),
    "int": int,
    "dict": dict[str, int],
    "None": None | _Twin1,
    "an empty schema": pa.schema([]),
    "two columns of one name": pa.schema([("odd", pa.int64()), ("odd", pa.int64())]),
    "a column that is ours": pa.schema([("_key", pa.int64())]),
    "another one": pa.schema([("_type", pa.string()), ("a", pa.int64())]),
    "a zone that is nowhere": pa.schema([("odd", pa.timestamp("us", "Nowhere/City"))]),
    "a zone that is nowhere, in a list": pa.schema([("odd", pa.list_(pa.timestamp("us", "Nowhere/City")))]),
    "a chosen zone that is nowhere": _class(odd=Annotated[dt.datetime, pa.timestamp("us", "Nowhere/City")]),
    "an Arrow type that its values do not fit": _class(odd=Annotated[int, pa.string()]),
}


@pytest.mark.parametrize("what", UNSTORABLE)
def test_a_type_that_cannot_be_stored_is_refused_when_declared(store: hr.Store, what: str) -> None:
    with pytest.raises(SchemaMismatch):
        store.stream("s", UNSTORABLE[what])
    assert store.streams() == []


def test_a_chosen_arrow_type_is_used_for_an_optional_field_too(store: hr.Store) -> None:
    Small = dataclasses.make_dataclass("Small", [("n", Annotated[int | None, pa.int32()])])
    Smaller = dataclasses.make_dataclass("Smaller", [("n", Annotated[int, pa.int8()] | None)])
    assert store.stream("a", Small).schema.field("n").type == pa.int32()
    assert store.stream("b", Smaller).schema.field("n").type == pa.int8()


def test_a_value_that_a_chosen_arrow_type_would_change_is_refused(store: hr.Store) -> None:
    from headrace.stream import BadEntry

    Coarse = dataclasses.make_dataclass("Coarse", [("at", Annotated[dt.datetime, pa.timestamp("ms", "UTC")])])
    stream = store.stream("s", Coarse)
    fits = Coarse(dt.datetime(2024, 1, 1, 0, 0, 0, 123000, tzinfo=UTC))
    with stream.publisher() as publisher:
        publisher.publish(fits)
        with pytest.raises(BadEntry, match="at"):
            publisher.publish(Coarse(dt.datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)))
    assert [same(value) for value in values(stream)] == [same(fits)]
