"""Streams in one reading: each test is one thing that they do, from the first publish to unique ids."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernel.errors import KeyOrder, SchemaMismatch
from headrace.stream import BadEntry, DuplicateId, Head, PublisherTaken, UnknownVariant

T0 = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Order:
    at: datetime
    user: str
    amount: float


def order(n: int, user: str = "ann") -> Order:
    return Order(T0 + n * SECOND, user, float(n))


def test_a_stream_is_declared_by_a_type_published_to_and_listened_to(place: Path) -> None:
    with hr.open(place / "data") as store:  # embedded: a directory, no server
        orders = store.stream("orders", Order, order_by="at")  # created, or checked against what is there
        with orders.publisher() as publisher:  # one per stream
            assert publisher.publish(order(0)) == 0  # the index is known at once
            assert publisher.publish(order(1)) == 1
            publisher.flush()  # durable when this returns
            assert publisher.durable_index == 2

        entries = list(orders.listen())
        assert [entry.value for entry in entries] == [order(0), order(1)]
        assert [entry.index for entry in entries] == [0, 1]
        assert [entry.key for entry in entries] == [T0, T0 + SECOND]


def test_the_snippet_of_the_design_works_as_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    table = pa.table({"at": [T0 + 2 * SECOND], "user": ["bob"], "amount": [2.0]})

    store = hr.open("data")
    orders = store.stream("orders", Order, order_by="at")
    with orders.publisher() as publisher:
        index = publisher.publish(Order(T0, "ann", 1.5))
        assert index == 0
        publisher.publish_batch(table)
        publisher.head(T0 + 3 * SECOND)
        with pytest.raises(PublisherTaken):
            orders.publisher()
    seen = []
    for entry in orders.listen(start=hr.at_key(T0), follow=True):
        seen.append(entry.value)
        if len(seen) == 2:
            break
    assert seen == [Order(T0, "ann", 1.5), Order(T0 + 2 * SECOND, "bob", 2.0)]
    store.close()


def test_many_entries_at_once_come_as_a_table(store: hr.Store) -> None:
    orders = store.stream("orders", Order, order_by="at")
    table = pa.table(
        {"amount": [0.0, 1.0, 2.0], "user": ["ann"] * 3, "at": [T0, T0 + SECOND, T0 + 2 * SECOND]}
    )  # columns are found by name
    with orders.publisher() as publisher:
        published = publisher.publish_batch(table)
        assert (published.base_index, published.next_index) == (0, 3)
    assert [entry.value for entry in orders.listen()] == [order(0), order(1), order(2)]
    assert sum(batch.records.num_rows for batch in orders.listen_batches()) == 3
    (batch,) = orders.listen_batches(columns=["amount"])
    assert batch.records.to_pydict() == {"amount": [0.0, 1.0, 2.0]}


def test_a_wrong_entry_is_refused_on_the_spot(store: hr.Store) -> None:
    orders = store.stream("orders", Order, order_by="at")
    with orders.publisher() as publisher:
        publisher.publish(order(5))
        with pytest.raises(BadEntry, match="amount"):
            publisher.publish(Order(T0 + 6 * SECOND, "ann", "much"))  # type: ignore[arg-type]
        with pytest.raises(BadEntry, match="time zone"):
            publisher.publish(Order(datetime(2024, 5, 1), "ann", 1.0))
        with pytest.raises(KeyOrder):
            publisher.publish(order(4))  # before the last one
        assert publisher.publish(order(6)) == 1


def test_listening_starts_and_ends_anywhere(store: hr.Store) -> None:
    orders = store.stream("orders", Order, order_by="at")
    with orders.publisher() as publisher:
        for n in range(10):
            publisher.publish(order(n))

    def heard(*args: object, **options: object) -> list[int]:
        return [entry.index for entry in orders.listen(*args, **options)]  # type: ignore[arg-type]

    assert heard(7) == [7, 8, 9]
    assert heard(hr.at_key(T0 + 7.5 * SECOND)) == [8, 9]
    assert heard(until=hr.at_key(T0 + 2 * SECOND)) == [0, 1]
    assert heard(3, until=6) == [3, 4, 5]
    assert heard(3, count=2) == [3, 4]
    assert heard(hr.END) == []


def test_a_follower_hears_what_is_published_later(store: hr.Store) -> None:
    orders = store.stream("orders", Order, order_by="at")
    heard = []

    def follow() -> None:
        for entry in orders.listen(follow=True, until=hr.at_key(T0 + 3 * SECOND)):
            heard.append(entry.index)

    follower = threading.Thread(target=follow)
    follower.start()
    with orders.publisher() as publisher:
        for n in range(3):
            publisher.publish(order(n))
        publisher.head(T0 + 3 * SECOND)  # time passes without an entry: the follower need not wait for one
        follower.join()
    assert heard == [0, 1, 2]


def test_a_listener_calls_back_in_its_own_thread_until_it_is_told_to_stop(store: hr.Store) -> None:
    orders = store.stream("orders", Order, order_by="at")
    calls: list[tuple[int, str]] = []
    heads: list[Head] = []

    def hear(entry: object) -> object:
        calls.append((entry.index, threading.current_thread().name))  # type: ignore[attr-defined]
        return hr.STOP if entry.index == 2 else None  # type: ignore[attr-defined]

    with orders.publisher() as publisher:
        publisher.publish(order(0))
        publisher.head(T0 + SECOND)
        listener = orders.listener(hear, on_head=heads.append)
        for n in range(1, 5):
            publisher.publish(order(n))
        assert listener.join(60)
    assert [index for index, _ in calls] == [0, 1, 2]
    assert threading.current_thread().name not in {name for _, name in calls}
    assert heads == [Head(T0 + SECOND, 1)]
    assert (listener.state, listener.error) == ("ended", None)


class Paid(msgspec.Struct, frozen=True):
    order: int
    cents: int


@dataclass(frozen=True)
class Shipped:
    order: int
    to: str | None = None


@dataclass(frozen=True)
class Returned:
    order: int
    why: str


def test_a_union_gives_back_the_same_concrete_objects(store: hr.Store) -> None:
    events = store.stream("events", Paid | Shipped)
    with events.publisher() as publisher:
        publisher.publish(Paid(1, 250))
        publisher.publish(Shipped(1, "Oslo"))
        with pytest.raises(BadEntry):
            publisher.publish(Returned(1, "too small"))
    assert [entry.value for entry in events.listen()] == [Paid(1, 250), Shipped(1, "Oslo")]


def test_a_type_may_grow_and_old_entries_are_read_through_the_new_one(store: hr.Store) -> None:
    with store.stream("events", Paid | Shipped).publisher() as publisher:
        publisher.publish(Paid(1, 250))

    grown = store.stream("events", Paid | Shipped | Returned)  # a new variant
    with grown.publisher() as publisher:
        publisher.publish(Returned(1, "too small"))
    assert [entry.value for entry in grown.listen()] == [Paid(1, 250), Returned(1, "too small")]

    old = store.stream("events", Paid | Shipped)  # a program that has not been updated
    with pytest.raises(UnknownVariant, match="Returned"):
        list(old.listen())
    assert [entry.value for entry in old.listen(on_unknown="skip")] == [Paid(1, 250)]

    changed = dataclasses.make_dataclass("Shipped", [("order", str)])
    with pytest.raises(SchemaMismatch, match="order"):
        store.stream("events", Paid | changed)


def test_unique_ids_are_published_once(store: hr.Store) -> None:
    orders = store.stream("payments", Paid, unique_by="order")
    with orders.publisher() as publisher:
        assert publisher.publish(Paid(7, 100)) == 0
        with pytest.raises(DuplicateId) as refused:
            publisher.publish(Paid(7, 100))
        assert refused.value.index == 0
        assert refused.value.code == "duplicate_id"
        published = publisher.publish_batch(pa.table({"order": [6, 7, 8, 8], "cents": [1, 2, 3, 4]}))
        assert published.duplicates == (1, 3)  # rows that were left out
    assert [entry.value.order for entry in orders.listen()] == [7, 6, 8]


def test_a_stream_can_be_opened_without_its_type(store: hr.Store) -> None:
    with store.stream("orders", Order, order_by="at").publisher() as publisher:
        publisher.publish(order(0))
    assert store.streams() == ["orders"]
    (entry,) = store.stream("orders").listen()
    assert entry.value == {"at": T0, "user": "ann", "amount": 0.0}
    assert entry.key == T0


def test_raw_bytes_and_rows_of_an_arrow_schema_are_streams_too(store: hr.Store) -> None:
    with store.stream("raw", bytes).publisher() as publisher:
        publisher.publish(b"hello")
    assert [entry.value for entry in store.stream("raw").listen()] == [b"hello"]

    schema = pa.schema([pa.field("n", pa.int32(), nullable=False), pa.field("s", pa.string())])
    rows = store.stream("rows", schema, order_by="n")
    with rows.publisher() as publisher:
        publisher.publish({"n": 1, "s": "one"})
        publisher.publish({"n": 2})  # what may be null may be left out
    assert [entry.value for entry in rows.listen()] == [{"n": 1, "s": "one"}, {"n": 2, "s": None}]


def test_closing_the_store_loses_nothing(place: Path) -> None:
    with hr.open(place / "data") as store:
        publisher = store.stream("orders", Order, order_by="at").publisher()
        for n in range(1000):
            publisher.publish(order(n))
    with hr.open(place / "data") as store:
        assert store.stream("orders").next_index == 1000
