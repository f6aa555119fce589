"""A stream of one class becomes a union: its older entries, which do not say their class, are of that one."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.kernel.errors import SchemaMismatch
from headrace.stream import DuplicateId
from waiting import until

from .samples import in_thread, publish_all, temporary_store, values


@dataclass(frozen=True)
class Paid:
    n: int
    amount: float


@dataclass(frozen=True)
class Refunded:
    n: int
    reason: str


@dataclass(frozen=True)
class Disputed:
    n: int
    amount: float


def test_a_stream_of_one_class_may_become_a_union(store: hr.Store) -> None:
    publish_all(store.stream("s", Paid, order_by="n"), [Paid(1, 0.5)])
    union = store.stream("s", Paid | Refunded, order_by="n")
    assert values(union) == [Paid(1, 0.5)]  # nobody published to the union yet
    publish_all(union, [Refunded(2, "broken"), Paid(3, 1.0)])
    everything = [Paid(1, 0.5), Refunded(2, "broken"), Paid(3, 1.0)]
    assert values(union) == everything
    assert values(store.stream("s", Refunded | Paid, order_by="n")) == everything
    assert values(union, hr.at_key(2)) == everything[1:]


def test_the_union_goes_on_growing(store: hr.Store) -> None:
    publish_all(store.stream("s", Paid), [Paid(1, 0.5)])
    publish_all(store.stream("s", Paid | Refunded), [Refunded(2, "broken")])
    publish_all(store.stream("s", Disputed | Paid | Refunded), [Disputed(3, 1.0)])
    expected = [Paid(1, 0.5), Refunded(2, "broken"), Disputed(3, 1.0)]
    assert values(store.stream("s", Paid | Refunded | Disputed)) == expected
    assert values(store.stream("s", Paid | Refunded), on_unknown="skip") == expected[:2]


def test_tables_tell_the_class_of_older_entries_too(store: hr.Store) -> None:
    publish_all(store.stream("s", Paid), [Paid(1, 0.5)])
    with store.stream("s", Paid | Refunded).publisher() as publisher:
        publisher.publish_batch(pa.table({"_type": ["Refunded"], "n": [2], "reason": ["broken"]}))
    for stream in (store.stream("s"), store.stream("s", Paid | Refunded)):
        batches = [batch.records for batch in stream.listen_batches(columns=["_type", "n"])]
        assert pa.Table.from_batches(batches).to_pydict() == {"_type": ["Paid", "Refunded"], "n": [1, 2]}
    rows = values(store.stream("s"))
    assert rows[0] == {"n": 1, "amount": 0.5, "_type": "Paid", "reason": None}


def test_ids_stay_unique(store: hr.Store) -> None:
    publish_all(store.stream("s", Paid, unique_by="n"), [Paid(1, 0.5)])
    with store.stream("s", Paid | Refunded, unique_by="n").publisher() as publisher:
        with pytest.raises(DuplicateId):
            publisher.publish(Refunded(1, "broken"))
        publisher.publish(Refunded(2, "broken"))


def test_the_class_may_have_been_renamed_before(store: hr.Store) -> None:
    Payment = make_dataclass("Payment", [("n", int), ("amount", float)])
    publish_all(store.stream("s", Paid), [Paid(1, 0.5)])
    publish_all(store.stream("s", Payment), [Payment(2, 0.5)])
    publish_all(store.stream("s", Payment | Refunded), [Refunded(3, "broken")])
    assert values(store.stream("s", Payment | Refunded)) == [
        Payment(1, 0.5), Payment(2, 0.5), Refunded(3, "broken"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [Refunded | Disputed, Paid | make_dataclass("Payment", [("n", int), ("amount", float)])],
    ids=["none of them", "two of them"],
)
def test_a_union_that_does_not_tell_which_class_it_was_is_refused(store: hr.Store, kind: Any) -> None:
    Payment = make_dataclass("Payment", [("n", int), ("amount", float)])
    publish_all(store.stream("s", Paid), [Paid(1, 0.5)])
    publish_all(store.stream("s", Payment), [])
    with pytest.raises(SchemaMismatch, match="holds Paid or Payment"):
        store.stream("s", kind)


def test_rows_and_bytes_have_no_class_that_could_be_one_of_several(store: hr.Store) -> None:
    store.stream("rows", pa.schema([("n", pa.int64()), ("amount", pa.float64())]))
    store.stream("bytes", bytes)
    for name in ("rows", "bytes"):
        with pytest.raises(SchemaMismatch, match="without a class"):
            store.stream(name, Paid | Refunded)


def test_the_class_may_not_require_more_than_its_entries_have(store: hr.Store) -> None:
    Loose = make_dataclass("Paid", [("n", int), ("amount", float | None)])
    Needy = make_dataclass("Paid", [("n", int), ("amount", float | None), ("to", str)])
    publish_all(store.stream("s", Paid), [Paid(1, 0.5)])
    publish_all(store.stream("s", Loose), [Loose(2, None)])
    for kind, field in ((Paid, "amount"), (Needy, "to")):
        with pytest.raises(SchemaMismatch, match=rf"Paid\.{field} must be optional"):
            store.stream("s", kind | Refunded)
    assert values(store.stream("s", Loose | Refunded)) == [Loose(1, 0.5), Loose(2, None)]


Vague = make_dataclass("Vague", [("n", int | None)])


@pytest.mark.parametrize("entry", [Paid(1, 0.5), Vague(1)], ids=["required", "optional"])
def test_who_knows_the_one_class_only_is_told_rather_than_given_the_others_as_that(
    store: hr.Store, entry: Any
) -> None:
    """Even where all fields of the one may be None, so that any entry would do."""
    kind = type(entry)
    old = store.stream("s", kind)
    publish_all(old, [entry])
    heard: list[Any] = []
    following = in_thread(lambda: [heard.append(each.value) for each in old.listen(follow=True)])
    until(lambda: heard == [entry])
    publish_all(store.stream("s", kind | Refunded), [Refunded(2, "broken")])
    with pytest.raises(SchemaMismatch, match="became a union"):
        following.result()
    assert heard == [entry]
    with pytest.raises(SchemaMismatch, match="became a union"):
        values(old)
    for use in (old.publisher, lambda: store.stream("s", kind)):
        with pytest.raises(SchemaMismatch, match="holds a union"):
            use()


ENTRIES = st.one_of(
    st.builds(Paid, st.integers(0, 9), st.floats(0, 1)), st.builds(Refunded, st.integers(0, 9), st.text("ab"))
)
PAID = st.builds(Paid, st.integers(0, 9), st.floats(0, 1))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(PAID, min_size=1), max_size=3), st.lists(st.lists(ENTRIES, min_size=1), max_size=3))
def test_nothing_is_lost_and_nothing_mistaken(before: list[list[Any]], after: list[list[Any]]) -> None:
    with temporary_store() as store:
        store.stream("s", Paid)
        for entries in before:
            publish_all(store.stream("s", Paid), entries)
        for entries in after:
            publish_all(store.stream("s", Paid | Refunded), entries)
        everything = [entry for entries in before + after for entry in entries]
        stream = store.stream("s", Paid | Refunded)
        for start in range(len(everything) + 1):
            assert values(stream, start) == everything[start:]
