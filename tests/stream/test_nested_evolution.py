"""Records inside records change too: in a field, in lists, in maps, at any depth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, make_dataclass
from types import NoneType
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.kernel.errors import SchemaMismatch
from headrace.stream import UnknownVariant
from headrace.stream.query import query

from .samples import in_thread, publish_all, temporary_store, values


@dataclass
class Address:
    street: str
    zip: int


@dataclass
class AddressInCountry:
    street: str
    zip: int
    country: str | None = None


def order_with(kind: Any) -> Any:
    """An order whose addresses are of this kind."""
    fields = [("n", int), ("to", kind), ("bill", kind | None), ("via", list[kind]), ("by", dict[str, kind])]
    return make_dataclass("Order", fields)


Order, OrderAbroad = order_with(Address), order_with(AddressInCountry)
HOME, AWAY = Address("Elm", 1), AddressInCountry("Oak", 2, "FI")
AT_HOME = Order(1, HOME, None, [HOME, HOME], {"a": HOME})
AT_HOME_AS_ABROAD = OrderAbroad(
    1, AddressInCountry("Elm", 1), None, [AddressInCountry("Elm", 1)] * 2, {"a": AddressInCountry("Elm", 1)}
)
ABROAD = OrderAbroad(2, AWAY, AWAY, [AWAY], {"b": AWAY})
ABROAD_AS_AT_HOME = Order(
    2, Address("Oak", 2), Address("Oak", 2), [Address("Oak", 2)], {"b": Address("Oak", 2)}
)


def test_a_record_inside_may_gain_an_optional_field(store: hr.Store) -> None:
    publish_all(store.stream("s", Order), [AT_HOME])
    new = store.stream("s", OrderAbroad)
    assert values(new) == [AT_HOME_AS_ABROAD]
    publish_all(new, [ABROAD])
    assert values(new) == [AT_HOME_AS_ABROAD, ABROAD]


def test_an_old_program_goes_on_when_a_record_inside_has_grown(store: hr.Store) -> None:
    opened_before = store.stream("s", Order)
    following = in_thread(lambda: [entry.value for entry in opened_before.listen(count=3, follow=True)])
    publish_all(store.stream("s", OrderAbroad), [ABROAD])
    old = store.stream("s", Order)
    publish_all(old, [AT_HOME])
    with opened_before.publisher() as publisher:
        publisher.publish_batch([vars(AT_HOME)])
    expected = [ABROAD_AS_AT_HOME, AT_HOME, AT_HOME]
    assert values(old) == values(opened_before) == following.result() == expected
    assert values(store.stream("s", OrderAbroad)) == [ABROAD, AT_HOME_AS_ABROAD, AT_HOME_AS_ABROAD]


def test_tables_of_an_older_kind_are_taken(store: hr.Store) -> None:
    publish_all(store.stream("old", Order), [AT_HOME])
    tables = [batch.records for batch in store.stream("old", Order).listen_batches()]
    new = store.stream("new", OrderAbroad)
    with new.publisher() as publisher:
        publisher.publish_batch(tables[0])
    assert values(new) == [AT_HOME_AS_ABROAD]


def test_batches_have_the_schema_that_the_stream_tells(store: hr.Store) -> None:
    """Also before anybody published the new field, and when only some columns are read."""
    publish_all(store.stream("s", Order), [AT_HOME])
    for kind in (OrderAbroad, Order):
        stream = store.stream("s", kind)
        (batch,) = stream.listen_batches()
        assert batch.records.schema == stream.schema
        (batch,) = stream.listen_batches(columns=["via"])
        assert batch.records.schema.field("via") == stream.schema.field("via")
        batch.records.validate(full=True)


def test_queries_see_what_listeners_see(store: hr.Store) -> None:
    pytest.importorskip("duckdb")
    publish_all(store.stream("s", Order), [AT_HOME])
    for kind, names in ((Order, ["street", "zip"]), (OrderAbroad, ["street", "zip", "country"])):
        with query(store.stream("s", kind), 'SELECT "to", via[1] AS via FROM s') as result:
            rows = [row for batch in result for row in batch.to_pylist()]
        assert [list(value) for row in rows for value in row.values()] == [names, names]


def test_structs_of_msgspec_grow_as_dataclasses_do(store: hr.Store) -> None:
    Old = msgspec.defstruct("Inner", [("a", int)])
    New = msgspec.defstruct("Inner", [("b", str | None, None), ("a", int)], kw_only=True)
    Outer, Outer2 = (msgspec.defstruct("Outer", [("inner", kind)]) for kind in (Old, New))
    publish_all(store.stream("s", Outer), [Outer(Old(1))])
    publish_all(store.stream("s", Outer2), [Outer2(New(a=2, b="x"))])
    assert values(store.stream("s", Outer2)) == [Outer2(New(a=1)), Outer2(New(a=2, b="x"))]
    assert values(store.stream("s", Outer)) == [Outer(Old(1)), Outer(Old(2))]


def test_rows_of_an_arrow_schema_grow_inside(store: hr.Store) -> None:
    before = pa.schema([("a", pa.list_(pa.struct([("x", pa.int64())])))])
    after = pa.schema([("a", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())])))])
    publish_all(store.stream("s", before), [{"a": [{"x": 1}, None]}, {"a": None}])
    publish_all(store.stream("s", after), [{"a": [{"x": 2, "y": "z"}]}])
    expected = [{"a": [{"x": 1, "y": None}, None]}, {"a": None}, {"a": [{"x": 2, "y": "z"}]}]
    assert values(store.stream("s", after)) == values(store.stream("s")) == expected


def test_the_refusal_tells_the_path_and_both_types(store: hr.Store) -> None:
    store.stream("s", Order)
    for field in ("to", "bill", "via", "by"):
        changed = make_dataclass("Address", [("street", str), ("zip", str)])
        kinds = {"to": changed, "bill": changed | None, "via": list[changed], "by": dict[str, changed]}  # type: ignore[valid-type]
        fields = [(each.name, each.type) for each in dataclasses.fields(Order)]
        kind = make_dataclass(
            "Order", [(name, kinds[name] if name == field else old) for name, old in fields]
        )
        with pytest.raises(SchemaMismatch, match=f"'{field}.zip' is int64 in the stream and string in"):
            store.stream("s", kind)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (list[int], list[int | None]),
        (list[int | None], list[int]),
        (dict[str, int], dict[str, int | None]),
        (dict[str, int], dict[int, int]),
        (dict[str, int], list[int]),
        (list[Address], Address),
        (list[Address], list[Address | None]),
    ],
    ids=str,
)
def test_lists_and_maps_themselves_do_not_change(store: hr.Store, old: Any, new: Any) -> None:
    store.stream("s", make_dataclass("Entry", [("many", old)]))
    with pytest.raises(SchemaMismatch, match="'many' is"):
        store.stream("s", make_dataclass("Entry", [("many", new)]))


def test_keys_of_a_map_do_not_grow(store: hr.Store) -> None:
    """Two keys that differ in the new field only would be one to an older program."""
    Key = make_dataclass("Key", [("a", int)], frozen=True)
    Key2 = make_dataclass("Key", [("a", int), ("b", int | None)], frozen=True)
    store.stream("s", make_dataclass("Entry", [("by", dict[Key, int])]))
    with pytest.raises(SchemaMismatch, match="'by' is"):
        store.stream("s", make_dataclass("Entry", [("by", dict[Key2, int])]))


def test_who_still_requires_what_became_optional_is_told(store: hr.Store) -> None:
    """Also a program that is listening already: it would get None where its type has none."""
    Loose = make_dataclass("Address", [("street", str), ("zip", int | None)])
    LooseOrder = order_with(Loose)
    listening = store.stream("s", Order)
    publish_all(listening, [AT_HOME])
    publish_all(store.stream("s", LooseOrder), [])
    assert values(listening) == [AT_HOME]
    publish_all(store.stream("s", LooseOrder), [LooseOrder(1, Loose("Elm", None), None, [], {})])
    for listens in (listening.listen, lambda: values(store.stream("s", Order))):
        with pytest.raises(SchemaMismatch, match=r"'to\.zip' may be None in the stream"):
            list(listens())


# --- properties: any type, grown anywhere, with any values

GROWING = ["same", "same", "optional", "added"]
LOOSENING = [*GROWING, "loosened"]


@st.composite
def grown_kinds(draw: st.DrawFn, changes: list[str], depth: int) -> tuple[Any, Any]:
    """The type of a field, and what may become of it."""
    form = draw(st.sampled_from(["plain", "list", "dict", "record", "record"] if depth else ["plain"]))
    if form == "plain":
        kind = draw(st.sampled_from([int, str]))
        return kind, kind
    if form == "record":
        return draw(grown_records(changes, depth - 1))
    old, new = draw(grown_kinds(changes, depth - 1))
    if draw(st.booleans()):
        old, new = old | None, new | None
    return (list[old], list[new]) if form == "list" else (dict[str, old], dict[str, new])


@st.composite
def grown_records(draw: st.DrawFn, changes: list[str], depth: int = 3) -> tuple[Any, Any]:
    """A record, and what may become of it: fields are added, or optional from now on, or in another order."""
    before, after = [], []
    for name in "abc"[: draw(st.integers(1, 3))]:
        change = draw(st.sampled_from(changes)) if name != "a" else "same"
        old, new = draw(grown_kinds(changes, depth))
        if change != "added":
            before.append((name, old | None if change == "optional" else old))
        after.append((name, new if change == "same" else new | None))
    return make_dataclass("Old", before), make_dataclass("New", draw(st.permutations(after)))


def inner(kind: Any) -> Any:
    """What a list, a map or an optional type is of; None for a record and a plain type."""
    return next((each for each in get_args(kind)[::-1] if each is not NoneType), None)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    if dataclasses.is_dataclass(kind):
        return st.builds(kind, **{field.name: values_of(field.type) for field in dataclasses.fields(kind)})
    if kind in (int, str):
        return st.integers(-5, 5) if kind is int else st.text("xyz", max_size=2)
    inside = values_of(inner(kind))
    if NoneType in get_args(kind):
        return st.none() | inside
    is_list = len(get_args(kind)) == 1
    return st.lists(inside, max_size=2) if is_list else st.dictionaries(st.text("k", max_size=2), inside)


def seen_as(value: Any, kind: Any) -> Any:
    """The value as a program sees it whose type is `kind`: what is not there is None."""
    if dataclasses.is_dataclass(kind) and value is not None:
        fields = {each.name: each.type for each in dataclasses.fields(kind)}
        made = {name: seen_as(getattr(value, name, None), each) for name, each in fields.items()}
        return kind(**made)  # type: ignore[operator]
    if isinstance(value, list):
        return [seen_as(each, inner(_some(kind))) for each in value]
    if isinstance(value, dict):
        return {key: seen_as(each, inner(_some(kind))) for key, each in value.items()}
    return seen_as(value, _some(kind)) if value is not None and kind is not _some(kind) else value


def _some(kind: Any) -> Any:
    """The type without None."""
    return inner(kind) if NoneType in get_args(kind) else kind


UNHURRIED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@UNHURRIED
@given(st.data())
def test_programs_of_both_ages_share_a_stream_of_any_type(data: st.DataObject) -> None:
    Old, New = data.draw(grown_records(GROWING))
    first, second, third = (
        data.draw(st.lists(values_of(kind), min_size=1, max_size=3)) for kind in (Old, New, Old)
    )
    everything = first + second + third
    with temporary_store() as store:
        opened_before = store.stream("s", Old)
        publish_all(opened_before, first)
        publish_all(store.stream("s", New), second)
        publish_all(store.stream("s", Old), third)
        for stream in (opened_before, store.stream("s", Old)):
            assert values(stream) == [seen_as(value, Old) for value in everything]
        new = store.stream("s", New)
        assert values(new) == [seen_as(value, New) for value in everything]
        for start in range(len(everything)):
            assert values(new, start) == [seen_as(value, New) for value in everything[start:]]
        for batch in new.listen_batches():
            batch.records.validate(full=True)


@UNHURRIED
@given(st.data())
def test_what_is_required_may_become_optional_anywhere(data: st.DataObject) -> None:
    Old, New = data.draw(grown_records(LOOSENING))
    before = data.draw(st.lists(values_of(Old), min_size=1, max_size=3))
    after = data.draw(st.lists(values_of(New), min_size=1, max_size=3))
    with temporary_store() as store:
        publish_all(store.stream("s", Old), before)
        publish_all(store.stream("s", New), after)
        assert values(store.stream("s", New)) == [seen_as(value, New) for value in before + after]


Fields = list[tuple[str, Any]]
CHANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "another type": ("is", lambda kind: bytes | None if NoneType in get_args(kind) else bytes),
    "no longer optional": ("may be None", lambda kind: _some(kind)),
    "gone": ("is not in", lambda kind: kind if NoneType in get_args(kind) else None),
}


def paths(kind: Any) -> Iterator[list[str]]:
    """Of all fields, at all depths."""
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            yield [field.name]
            yield from ([field.name, *path] for path in paths(field.type))
    elif inner(kind) is not None:
        yield from paths(inner(kind))


def changed(kind: Any, path: list[str], change: Callable[[Any], Any]) -> Any:
    """The type with another one for the field at this path; if that is None, with an optional field."""
    if dataclasses.is_dataclass(kind):
        made: Fields = []
        for field in dataclasses.fields(kind):
            new = field.type
            if field.name == path[0]:
                new = change(new) if len(path) == 1 else changed(new, path[1:], change)
            made.append((field.name, new) if new is not None else ("another", int | None))
        return make_dataclass("Changed", made)
    inside = changed(inner(kind), path, change)
    if NoneType in get_args(kind):
        return inside | None
    return list[inside] if len(get_args(kind)) == 1 else dict[str, inside]


@UNHURRIED
@given(st.data(), st.sampled_from(sorted(CHANGES)))
def test_every_other_change_anywhere_is_refused_with_its_path(data: st.DataObject, what: str) -> None:
    kind, _ = data.draw(grown_records(GROWING))
    path = data.draw(st.sampled_from(list(paths(kind))))
    said, change = CHANGES[what]
    other = changed(kind, path, change)
    with temporary_store() as store:
        store.stream("s", kind)
        if repr(describe(other)) == repr(describe(kind)):
            store.stream("s", other)  # it was no change for this field
            return
        with pytest.raises(SchemaMismatch, match=f"'{'.'.join(path)}'.* {said}"):
            store.stream("s", other)


@UNHURRIED
@given(st.data())
def test_a_new_field_that_is_required_is_refused_anywhere(data: st.DataObject) -> None:
    kind, _ = data.draw(grown_records(GROWING))
    path = data.draw(st.sampled_from(list(paths(kind))))
    added = make_dataclass("Added", [("deep", int)])

    def add(old: Any) -> Any:
        return make_dataclass("Both", [("old", old), ("new", added)])

    records = changed(kind, path, lambda old: make_dataclass("One", [("old", old)]))
    grown = changed(kind, path, add)
    with temporary_store() as store:
        store.stream("s", records)
        with pytest.raises(
            SchemaMismatch, match=rf"the new field '{'.'.join(path)}\.new' .* must be optional"
        ):
            store.stream("s", grown)


def describe(kind: Any) -> Any:
    """A type by its fields alone."""
    if dataclasses.is_dataclass(kind):
        return {field.name: describe(field.type) for field in dataclasses.fields(kind)}
    return [describe(each) for each in get_args(kind)] or kind


# --- unions inside


@dataclass
class Card:
    number: str


@dataclass
class Cash:
    given: int


@dataclass
class Voucher:
    code: str


def paid_by(*kinds: Any) -> Any:
    kind = kinds[0]
    for each in kinds[1:]:
        kind = kind | each
    return make_dataclass("Paid", [("by", kind), ("tips", list[kind])])  # type: ignore[valid-type]


def test_a_union_inside_may_gain_variants_and_optional_fields(store: hr.Store) -> None:
    Card2 = make_dataclass("Card", [("number", str), ("expires", int | None)])
    Old, New = paid_by(Card, Cash), paid_by(Card2, Cash, Voucher)
    old, new = store.stream("s", Old), store.stream("s", New)
    publish_all(old, [Old(Card("1"), [Cash(2)])])
    publish_all(new, [New(Card2("2", 2030), [])])
    assert values(old) == [Old(Card("1"), [Cash(2)]), Old(Card("2"), [])]
    publish_all(new, [New(Voucher("v"), [])])
    assert values(new) == [New(Card2("1", None), [Cash(2)]), New(Card2("2", 2030), []), New(Voucher("v"), [])]
    with pytest.raises(UnknownVariant, match="Voucher"):
        values(old)


@pytest.mark.parametrize(
    ("needy", "field"),
    [
        (make_dataclass("Card", [("number", str), ("expires", int)]), "expires"),
        (make_dataclass("Card", [("number", str), ("given", int)]), "given"),
    ],
    ids=["a new column", "a column that another variant has"],
)
def test_a_variant_inside_may_not_require_more(store: hr.Store, needy: Any, field: str) -> None:
    """All columns of a union are nullable: only the stream's meta can tell."""
    store.stream("s", paid_by(Card, Cash))
    with pytest.raises(SchemaMismatch, match=rf"by\.Card\.{field} must be optional"):
        store.stream("s", paid_by(needy, Cash))


def test_what_was_optional_in_a_variant_inside_stays_so(store: hr.Store) -> None:
    Loose = make_dataclass("Card", [("number", str | None)])
    store.stream("s", paid_by(Card, Cash))
    publish_all(store.stream("s", paid_by(Loose, Cash)), [])
    with pytest.raises(SchemaMismatch, match=r"by\.Card\.number must be optional"):
        store.stream("s", paid_by(Card, Cash))


def test_a_union_inside_keeps_its_tag_and_a_class_inside_gets_none(store: hr.Store) -> None:
    store.stream("one", make_dataclass("Paid", [("by", Card)]))
    store.stream("two", make_dataclass("Paid", [("by", Card | Cash)]))
    with pytest.raises(SchemaMismatch, match=r"'by\._type'"):
        store.stream("one", make_dataclass("Paid", [("by", Card | Cash)]))
    with pytest.raises(SchemaMismatch, match=r"'by\._type'"):
        store.stream("two", make_dataclass("Paid", [("by", Card)]))
