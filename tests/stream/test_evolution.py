"""Types change: what is fine, what is not, and how programs of different ages share a stream."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, make_dataclass
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernel.errors import SchemaMismatch
from headrace.log import Finalize
from headrace.stream import UnknownVariant

from .samples import in_thread, publish_all, values


@dataclass
class Shape:
    n: int
    name: str | None = None


Wider = make_dataclass("Shape", [("n", int), ("name", str | None), ("size", float | None, None)])
Narrower = make_dataclass("Shape", [("n", int)])


def test_a_new_program_reads_an_old_stream_before_and_after_it_publishes(store: hr.Store) -> None:
    publish_all(store.stream("s", Shape), [Shape(1, "a")])
    new = store.stream("s", Wider)
    assert values(new) == [Wider(1, "a", None)]
    publish_all(new, [Wider(2, None, 0.5)])
    assert values(new) == [Wider(1, "a", None), Wider(2, None, 0.5)]
    assert store.stream("s").schema.names == ["n", "name", "size"]


def test_an_old_program_goes_on_with_a_stream_that_has_grown(store: hr.Store) -> None:
    old = store.stream("s", Shape)
    publish_all(store.stream("s", Wider), [Wider(1, "a", 0.5)])
    assert values(old) == [Shape(1, "a")]
    publish_all(old, [Shape(2)])
    publish_all(store.stream("s", Narrower), [Narrower(3)])
    assert values(old) == [Shape(1, "a"), Shape(2), Shape(3)]
    assert values(store.stream("s", Wider)) == [Wider(1, "a", 0.5), Wider(2, None), Wider(3, None)]
    assert values(store.stream("s", Narrower)) == [Narrower(1), Narrower(2), Narrower(3)]


def test_rows_with_a_field_that_the_program_does_not_know_are_refused_rather_than_cut(
    store: hr.Store,
) -> None:
    old = store.stream("s", Shape)
    publish_all(store.stream("s", Wider), [Wider(1, "a", 0.5)])
    with old.publisher() as publisher:
        with pytest.raises(hr.Refused, match="'size'"):
            publisher.publish_batch([{"n": 2, "size": 1.5}])
        publisher.publish_batch([{"n": 2}])
        publisher.publish_batch(pa.table({"n": [3], "size": [1.5]}))  # a table's columns are the stream's
    assert values(store.stream("s", Wider)) == [Wider(1, "a", 0.5), Wider(2, None), Wider(3, None, 1.5)]


def test_segments_of_all_ages_are_read_through_any_type(store: hr.Store) -> None:
    kinds: list[Any] = [Narrower, Shape, Wider]
    settings = hr.Settings(finalize=Finalize(entries=2))
    store.stream("s", Narrower, settings=settings)
    for turn in range(12):
        kind = kinds[turn % 3]
        publish_all(store.stream("s", kind), [kind(turn), kind(100 + turn)] if kind is not Wider else
                    [Wider(turn, None), Wider(100 + turn, "x", 1.0)])  # fmt: skip
    for kind in kinds:
        assert [value.n for value in values(store.stream("s", kind))] == [
            n for turn in range(12) for n in (turn, 100 + turn)
        ]
    for column, expected in (("size", 4), ("name", 4)):
        arrays = [b.records.column(0) for b in store.stream("s", Wider).listen_batches(columns=[column])]
        column_of_all = pa.chunked_array(arrays)
        assert (len(column_of_all), len(column_of_all) - column_of_all.null_count) == (24, expected)


def test_a_listener_under_way_is_not_disturbed_by_growth(store: hr.Store) -> None:
    old = store.stream("s", Shape)
    following = in_thread(lambda: [entry.value for entry in old.listen(count=3, follow=True)])
    publish_all(old, [Shape(1)])
    publish_all(store.stream("s", Wider), [Wider(2, "b", 0.5)])
    publish_all(old, [Shape(3)])
    assert following.result() == [Shape(1), Shape(2, "b"), Shape(3)]


def test_a_program_that_was_there_before_the_stream_grew_sees_new_fields_too(store: hr.Store) -> None:
    """Two programs of the new type; the one that listens opened the stream while it was still the old one."""
    publish_all(store.stream("s", Shape), [Shape(1, "a")])
    listens = store.stream("s", Wider)
    following = in_thread(lambda: [entry.value for entry in listens.listen(count=2, follow=True)])
    publish_all(store.stream("s", Wider), [Wider(2, "b", 0.5)])
    expected = [Wider(1, "a", None), Wider(2, "b", 0.5)]
    assert values(listens) == expected
    assert following.result() == expected


def test_a_required_field_may_become_optional(store: hr.Store) -> None:
    publish_all(store.stream("s", Narrower), [Narrower(1)])
    Loose = make_dataclass("Shape", [("n", int | None)])
    publish_all(store.stream("s", Loose), [Loose(None)])
    assert values(store.stream("s", Loose)) == [Loose(1), Loose(None)]
    with pytest.raises(SchemaMismatch, match="'n'"):
        store.stream("s", Narrower)


def test_growth_of_rows_of_an_arrow_schema(store: hr.Store) -> None:
    before = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    after = before.append(pa.field("b", pa.list_(pa.string())))
    publish_all(store.stream("s", before), [{"a": 1}])
    publish_all(store.stream("s", after), [{"a": 2, "b": ["x"]}])
    assert values(store.stream("s", after)) == [{"a": 1, "b": None}, {"a": 2, "b": ["x"]}]
    assert values(store.stream("s")) == [{"a": 1, "b": None}, {"a": 2, "b": ["x"]}]


Base = make_dataclass("Base", [("n", int), ("text", str), ("maybe", int | None), ("many", list[int])])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("n", str), ("text", str)], ["'n'", "int64", "string"]),
        ([("n", float), ("text", str)], ["'n'", "int64", "double"]),
        ([("n", int), ("text", bytes)], ["'text'", "string", "binary"]),
        ([("text", str)], ["'n'", "int64"]),
        ([("n", int), ("text", str), ("many", list[str])], ["'many'", "int64", "string"]),
        (
            [("n", int), ("text", str), ("many", set[int]), ("maybe", str | None)],
            ["'maybe'", "int64", "string"],
        ),
        ([("n", int), ("text", str), ("many", list[int]), ("maybe", int)], ["'maybe'", "None"]),
        ([("n", int), ("text", str), ("many", list[int]), ("new", int)], ["'new'", "int64", "optional"]),
        ([("n", int), ("text", str), ("many", list[int | None])], ["'many'"]),
        ([("number", int), ("text", str), ("many", list[int])], ["'n'"]),
    ],
)
def test_every_other_change_is_refused_with_field_old_and_new_type(
    store: hr.Store, fields: list[Any], said: list[str]
) -> None:
    publish_all(store.stream("s", Base), [Base(1, "a", None, [1])])
    changed = make_dataclass("Base", fields)
    with pytest.raises(SchemaMismatch) as refused:
        store.stream("s", changed)
    for word in ["'s'", *said]:
        assert word in str(refused.value)
    assert values(store.stream("s", Base)) == [Base(1, "a", None, [1])]


def test_two_growing_programs_that_disagree_are_told_when_they_publish(store: hr.Store) -> None:
    """Both opened the stream before either of them published."""
    One = make_dataclass("Shape", [("n", int), ("extra", int | None)])
    Two = make_dataclass("Shape", [("n", int), ("extra", str | None)])
    publish_all(store.stream("s", Narrower), [Narrower(0)])
    first, second = store.stream("s", One), store.stream("s", Two)
    publish_all(first, [One(1, 1)])
    with pytest.raises(SchemaMismatch, match="'extra'"):
        second.publisher()
    with pytest.raises(hr.HeadraceError):
        list(second.listen())
    publish_all(first, [One(2, 2)])  # the refused publisher let the stream go
    assert values(first) == [One(0, None), One(1, 1), One(2, 2)]


# --- variants


@dataclass(frozen=True)
class A:
    n: int


@dataclass(frozen=True)
class B:
    n: int
    b: str


@dataclass(frozen=True)
class C:
    n: int
    c: tuple[int, ...]


def grown(store: hr.Store) -> hr.Stream:
    old = store.stream("s", A | B, order_by="n")
    publish_all(old, [A(0), B(1, "b")])
    publish_all(store.stream("s", A | B | C, order_by="n"), [C(2, (1, 2)), A(3), C(4, ())])
    return old


def test_a_union_may_gain_variants(store: hr.Store) -> None:
    grown(store)
    everything = [A(0), B(1, "b"), C(2, (1, 2)), A(3), C(4, ())]
    assert values(store.stream("s", A | B | C, order_by="n")) == everything
    assert values(store.stream("s", C | A | B, order_by="n")) == everything


@pytest.mark.parametrize("reopened", [False, True])
def test_a_program_that_does_not_know_a_variant_is_told_or_skips_or_sees_it_raw(
    store: hr.Store, reopened: bool
) -> None:
    old = grown(store)
    if reopened:
        old = store.stream("s", A | B, order_by="n")
    heard = []
    with pytest.raises(UnknownVariant, match="C"):
        for entry in old.listen():
            heard.append(entry.value)
    assert heard == [A(0), B(1, "b")]
    assert values(old, on_unknown="skip") == [A(0), B(1, "b"), A(3)]
    assert [entry.index for entry in old.listen(on_unknown="skip")] == [0, 1, 3]
    assert values(old, count=3, on_unknown="skip") == [A(0), B(1, "b"), A(3)]
    raw = values(old, on_unknown="raw")
    assert raw[:2] == [A(0), B(1, "b")]
    assert raw[3] == A(3)
    assert (raw[2]["_type"], raw[2]["n"]) == ("C", 2)
    assert [entry.key for entry in old.listen(on_unknown="raw")] == [0, 1, 2, 3, 4]


def test_a_listener_that_meets_an_unknown_variant_ends_with_it_or_skips_it(store: hr.Store) -> None:
    old = grown(store)
    for mode, expected in (("error", [0, 1]), ("skip", [0, 1, 3]), ("raw", [0, 1, 2, 3, 4])):
        calls: list[int] = []
        listener = old.listener(
            lambda entry, calls=calls: calls.append(entry.index),
            until=5,
            on_unknown=mode,  # type: ignore[arg-type]
        )
        assert listener.join(60)
        assert calls == expected
        assert isinstance(listener.error, UnknownVariant) == (mode == "error")


def test_a_variant_may_gain_an_optional_field(store: hr.Store) -> None:
    publish_all(store.stream("s", A | B), [B(1, "b")])
    B2 = make_dataclass("B", [("n", int), ("b", str), ("more", float | None)])
    publish_all(store.stream("s", A | B2), [B2(2, "c", 0.5)])
    assert values(store.stream("s", A | B2)) == [B2(1, "b", None), B2(2, "c", 0.5)]
    assert values(store.stream("s", A | B)) == [B(1, "b"), B(2, "c")]


def test_an_old_entry_without_a_field_that_its_variant_now_requires_is_not_made_up(store: hr.Store) -> None:
    """All columns of a union are nullable, so the schema cannot tell: the entry must."""
    publish_all(store.stream("s", A | B), [A(1)])
    A2 = make_dataclass("A", [("n", int), ("needed", int)])
    with pytest.raises(hr.HeadraceError):
        assert values(store.stream("s", A2 | B)) != [A2(1, None)]


@pytest.mark.parametrize(
    "kind", [A, A | dataclasses.make_dataclass("B", [("n", int), ("b", int)])], ids=["one", "type"]
)
def test_a_union_may_not_lose_its_tag_nor_change_a_field(store: hr.Store, kind: Any) -> None:
    grown(store)
    with pytest.raises(SchemaMismatch):
        store.stream("s", kind, order_by="n")


def test_what_was_optional_in_a_variant_stays_so(store: hr.Store) -> None:
    Loose = make_dataclass("A", [("n", int | None)])
    publish_all(store.stream("s", A | B), [A(1)])
    publish_all(store.stream("s", Loose | B), [Loose(None)])
    with pytest.raises(SchemaMismatch, match=r"A\.n must be optional"):
        store.stream("s", A | B)
    assert values(store.stream("s", Loose | B)) == [Loose(1), Loose(None)]


def test_an_enum_may_gain_members_and_who_does_not_know_one_is_told(store: hr.Store) -> None:
    Old = enum.Enum("Mode", {"SLOW": "slow"})
    New = enum.Enum("Mode", {"SLOW": "slow", "FAST": "fast"})
    OldJob = make_dataclass("Job", [("mode", Old)])
    NewJob = make_dataclass("Job", [("mode", New)])
    publish_all(store.stream("s", OldJob), [OldJob(Old.SLOW)])
    publish_all(store.stream("s", NewJob), [NewJob(New.FAST)])
    assert [job.mode for job in values(store.stream("s", NewJob))] == [New.SLOW, New.FAST]
    with pytest.raises(hr.HeadraceError, match="fast"):
        values(store.stream("s", OldJob))
