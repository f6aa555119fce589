"""Order keys never go back, wherever entries come from; HEAD moves them on without an entry."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.kernel.errors import BadSettings, KeyOrder
from headrace.log import Finalize
from headrace.stream import BadEntry, Head

from .samples import T0, Number, Order, child, end, in_thread, line_of, order, publish_all, temporary_store

UTC = dt.UTC


@dataclass(frozen=True)
class Keyed:
    key: int
    note: str = ""


class Real(msgspec.Struct, frozen=True):
    key: float


@dataclass(frozen=True)
class Timed:
    key: dt.datetime


@dataclass(frozen=True)
class Ticked:
    key: int
    tick: str


def second(n: float) -> dt.datetime:
    return T0 + dt.timedelta(seconds=n)


def text_key(entry: Keyed) -> str:
    return entry.note


KINDS: dict[str, tuple[type, Callable[[int], Any]]] = {
    "int": (Keyed, lambda n: Keyed(n)),
    "float": (Real, lambda n: Real(n / 2)),
    "datetime": (Timed, lambda n: Timed(second(n))),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strict", [False, True])
def test_keys_of_every_type_are_checked(store: hr.Store, kind: str, strict: bool) -> None:
    cls, make = KINDS[kind]
    stream = store.stream("s", cls, order_by="key", strict=strict)
    with stream.publisher() as publisher:
        publisher.publish(make(-5))
        publisher.publish(make(3))
        with pytest.raises(KeyOrder):
            publisher.publish(make(2))
        if strict:
            with pytest.raises(KeyOrder, match="increase"):
                publisher.publish(make(3))
        else:
            publisher.publish(make(3))
        publisher.publish(make(4))
    keys = [entry.key for entry in stream.listen()]
    assert keys == [make(n).key for n in ([-5, 3, 4] if strict else [-5, 3, 3, 4])]
    assert [entry.index for entry in stream.listen(hr.at_key(make(3).key), count=1)] == [1]


def test_without_order_by_the_key_is_the_index(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, [Number(9), Number(3)])
    assert [(entry.index, entry.key) for entry in stream.listen()] == [(0, 0), (1, 1)]
    assert stream.order_by is None
    with stream.publisher() as publisher, pytest.raises(hr.Refused, match="index"):
        publisher.head(5)


def test_a_function_gives_the_key_and_the_entry_stays_as_it_is(store: hr.Store) -> None:
    def late(entry: Keyed) -> float:
        return entry.key / 4

    stream = store.stream("s", Keyed, order_by=late)
    with stream.publisher() as publisher:
        publisher.publish(Keyed(1))
        with pytest.raises(KeyOrder):
            publisher.publish(Keyed(0))
        publisher.publish(Keyed(2))
        publisher.head(0.75)
        with pytest.raises(KeyOrder):
            publisher.publish(Keyed(2))
    assert [(entry.key, entry.value) for entry in stream.listen()] == [(0.25, Keyed(1)), (0.5, Keyed(2))]
    assert [entry.index for entry in stream.listen(hr.at_key(0.3))] == [1]

    again = store.stream("s", Keyed, order_by=late)
    with again.publisher() as publisher, pytest.raises(KeyOrder):
        publisher.publish(Keyed(2))


def test_a_function_may_give_datetimes_and_be_given_bytes_rows_or_unions(store: hr.Store) -> None:
    def moment(entry: Any) -> dt.datetime:
        return second(entry.key if not isinstance(entry, bytes | dict) else len(entry))

    raw = store.stream("raw", bytes, order_by=moment)
    publish_all(raw, [b"a", b"bc"])
    assert [(entry.key, entry.value) for entry in raw.listen()] == [(second(1), b"a"), (second(2), b"bc")]

    rows = store.stream("rows", pa.schema([("a", pa.int64()), ("b", pa.int64())]), order_by=moment)
    publish_all(rows, [{"a": 1}, {"a": 1, "b": 2}])
    assert [entry.key for entry in rows.listen()] == [second(1), second(2)]
    assert [entry.value for entry in rows.listen()] == [{"a": 1, "b": None}, {"a": 1, "b": 2}]

    union = store.stream("union", Keyed | Ticked, order_by=moment)
    publish_all(union, [Keyed(1), Ticked(2, "t")])
    assert [entry.key for entry in union.listen()] == [second(1), second(2)]


def test_a_function_that_raises_or_gives_something_else_leaves_nothing_behind(store: hr.Store) -> None:
    given: list[Any] = []

    def key(entry: Number) -> int:
        return given[0]  # type: ignore[no-any-return]

    stream = store.stream("s", Number, order_by=key)
    with stream.publisher() as publisher:
        with pytest.raises(IndexError):
            publisher.publish(Number(1))
        for wrong in (None, "5", 1 << 63, 1.5, second(1)):
            given[:] = [wrong]
            with pytest.raises(BadEntry, match="_key"):
                publisher.publish(Number(1))
        given[:] = [5]
        assert publisher.publish(Number(1)) == 0
    assert [entry.key for entry in stream.listen()] == [5]


def test_a_stream_with_a_computed_key_opened_without_its_type_takes_the_key_as_a_field(
    store: hr.Store,
) -> None:
    stream = store.stream("s", Keyed, order_by=lambda entry: entry.key)
    publish_all(stream, [Keyed(1)])
    untyped = store.stream("s")
    assert [(entry.key, entry.value) for entry in untyped.listen()] == [(1, {"key": 1, "note": ""})]
    with untyped.publisher() as publisher:
        with pytest.raises(BadEntry, match="_key"):
            publisher.publish({"key": 2, "note": ""})
        assert publisher.publish({"key": 2, "note": "", "_key": 2}) == 1


@pytest.mark.parametrize("kind", [Keyed | Ticked, Ticked | Keyed])
def test_a_field_that_all_variants_have_can_be_the_key_of_a_union(store: hr.Store, kind: Any) -> None:
    stream = store.stream("s", kind, order_by="key")
    with stream.publisher() as publisher:
        publisher.publish(Keyed(1))
        publisher.publish(Ticked(2, "t"))
        with pytest.raises(KeyOrder):
            publisher.publish(Keyed(1))
        with pytest.raises(BadEntry, match="key"):
            publisher.publish(Keyed(None))  # type: ignore[arg-type]
    assert [entry.key for entry in stream.listen()] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "order_by"),
    [
        (Keyed, "nothing"),
        (Keyed, "note"),
        (dataclasses.make_dataclass("Maybe", [("key", int | None)]), "key"),
        (Keyed | Number, "key"),
        (bytes, "data"),
        (Keyed, text_key),
        (pa.schema([("key", pa.string())]), "key"),
    ],
    ids=["no field", "text", "optional", "not in all variants", "bytes", "a function", "a column of text"],
)
def test_what_cannot_be_an_order_key_is_refused_when_declared(
    store: hr.Store, kind: Any, order_by: Any
) -> None:
    with pytest.raises(BadSettings):
        store.stream("s", kind, order_by=order_by)
    assert store.streams() == []


def test_a_key_is_never_nan_nor_missing(store: hr.Store) -> None:
    reals = store.stream("reals", Real, order_by="key")
    with reals.publisher() as publisher:
        for wrong in (math.nan, -math.nan):
            with pytest.raises((BadEntry, KeyOrder), match=r"(?i)nan"):
                publisher.publish(Real(wrong))
        for key in (-math.inf, -0.0, 0.0, 5e-324, math.inf):
            publisher.publish(Real(key))
        with pytest.raises((BadEntry, KeyOrder)):
            publisher.publish_batch(pa.table({"key": [math.nan]}))
        with pytest.raises(KeyOrder):
            publisher.head(math.nan)
    assert [entry.key for entry in reals.listen()] == [-math.inf, 0.0, 0.0, 5e-324, math.inf]

    rows = store.stream("rows", pa.schema([("key", pa.int64())]), order_by="key")
    with rows.publisher() as publisher:
        for _ in range(2):
            with pytest.raises((BadEntry, KeyOrder), match="key"):
                publisher.publish({"key": None})
            with pytest.raises((BadEntry, KeyOrder), match="key"):
                publisher.publish({})
            with pytest.raises(hr.Refused, match="key"):
                publisher.publish_batch(pa.table({"key": pa.nulls(1, pa.int64())}))
            publisher.publish({"key": 1})
    assert [entry.key for entry in rows.listen()] == [1, 1]


def test_moments_are_compared_as_instants_when_clocks_are_set_back(store: hr.Store) -> None:
    """Python compares two datetimes of one zone by what the clock on the wall says."""
    berlin = ZoneInfo("Europe/Berlin")
    summer = dt.datetime(2024, 10, 27, 2, 30, tzinfo=berlin)
    winter = dt.datetime(2024, 10, 27, 2, 10, tzinfo=berlin, fold=1)  # 40 minutes later
    stream = store.stream("s", Timed, order_by="key")
    with stream.publisher() as publisher:
        publisher.publish(Timed(summer))
        publisher.publish(Timed(winter))
        with pytest.raises(KeyOrder):
            publisher.publish(Timed(summer.replace(minute=50)))
        publisher.flush()
        with pytest.raises(KeyOrder):
            publisher.publish(Timed(summer.replace(minute=50)))
    assert [entry.index for entry in stream.listen(hr.at_key(winter))] == [1]


def test_naive_moments_are_no_keys(store: hr.Store) -> None:
    stream = store.stream("s", Timed, order_by="key")
    with stream.publisher() as publisher:
        publisher.publish(Timed(T0))
        with pytest.raises(hr.Refused, match="zone"):
            publisher.head(dt.datetime(2030, 1, 1))
        publisher.publish(Timed(T0))
    with pytest.raises(hr.Refused, match="zone"):
        list(stream.listen(hr.at_key(dt.datetime(2030, 1, 1))))
    with pytest.raises(hr.Refused, match="zone"):
        list(stream.listen(until=hr.at_key(dt.datetime(2030, 1, 1))))


Move = tuple[str, list[int]]
MOVES: st.SearchStrategy[list[Move]] = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.integers(0, 12), min_size=1, max_size=1)),
        st.tuples(st.just("batch"), st.lists(st.integers(0, 12), min_size=1, max_size=4)),
        st.tuples(st.just("chunks"), st.lists(st.integers(0, 12), min_size=2, max_size=4)),
        st.tuples(st.just("head"), st.lists(st.integers(0, 12), min_size=1, max_size=1)),
        st.tuples(st.just("flush"), st.just([])),
        st.tuples(st.just("reopen"), st.just([])),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(MOVES, st.booleans(), st.sampled_from(sorted(KINDS)), st.integers(1, 4))
def test_keys_are_in_order_whatever_mix_of_calls_they_come_by(
    moves: list[Move], strict: bool, kind: str, per_segment: int
) -> None:
    """Against a model: a list, and how far HEAD is. What is refused has changed nothing."""
    cls, make = KINDS[kind]
    kept: list[int] = []
    head: int | None = None
    items: list[Any] = []
    with temporary_store() as store:
        stream = store.stream(
            "s", cls, "key", strict=strict, settings=hr.Settings(finalize=Finalize(entries=per_segment))
        )
        publisher = stream.publisher()
        for move, keys in moves:
            floor = max([*kept[-1:], *([] if head is None else [head])], default=None)
            path = [*kept[-1:], *keys]
            fine = (floor is None or not keys or keys[0] >= floor) and all(
                (a < b if strict and move != "head" else a <= b) for a, b in pairwise(path)
            )
            call = _call(publisher, move, [make(key) for key in keys], keys, make)
            if move in ("flush", "reopen"):
                call()
                if move == "reopen":
                    publisher.close()
                    publisher = store.stream("s", cls, "key", strict=strict).publisher()
            elif not fine:
                with pytest.raises(KeyOrder):
                    call()
            elif move == "head":
                call()
                if head is None or keys[0] > head:  # one that does not move is not heard
                    items.append(("head", make(keys[0]).key, len(kept)))
                head = keys[0]
            else:
                call()
                items += [("entry", make(key).key, len(kept) + at) for at, key in enumerate(keys)]
                kept += keys
            assert publisher.next_index == len(kept)
        publisher.close()
        assert [entry.value for entry in stream.listen()] == [make(key) for key in kept]
        heard = [
            ("head", item.key, item.next_index) if isinstance(item, Head) else ("entry", item.key, item.index)
            for item in stream.listen_with_heads()
        ]
        assert heard == items


def _call(publisher: Any, move: str, entries: list[Any], keys: list[int], make: Any) -> Callable[[], Any]:
    column = [entry.key for entry in entries]
    table = {"key": column} if type(make(0)) is not Keyed else {"key": column, "note": [""] * len(column)}
    return {
        "publish": lambda: publisher.publish(entries[0]),
        "batch": lambda: publisher.publish_batch(pa.table(table)),
        "chunks": lambda: publisher.publish_batch(
            pa.concat_tables([pa.table(table).slice(0, 1), pa.table(table).slice(1)])
        ),
        "head": lambda: publisher.head(column[0]),
        "flush": publisher.flush,
        "reopen": publisher.flush,
    }[move]


def test_a_batch_with_keys_in_disorder_is_refused_whole(store: hr.Store) -> None:
    stream = store.stream("s", Timed, order_by="key")
    chunks = pa.chunked_array([[second(1), second(2)], [second(0)]])
    with stream.publisher() as publisher:
        with pytest.raises(KeyOrder):
            publisher.publish_batch(pa.table({"key": chunks}))
        assert publisher.next_index == 0
        assert publisher.publish(Timed(second(0))) == 0
    assert stream.next_index == 1


# --- HEAD reaches listeners


def test_head_reaches_listeners_of_every_kind(store: hr.Store) -> None:
    stream = store.stream("s", Order, order_by="at")
    heads: list[Head] = []
    follower = in_thread(lambda: list(stream.listen_with_heads(follow=True, until=hr.at_key(second(50)))))
    ender = in_thread(lambda: [e.index for e in stream.listen(follow=True, until=hr.at_key(second(20)))])
    batches = in_thread(
        lambda: [
            b.base_index
            for b in stream.listen_batches(follow=True, until=hr.at_key(second(20)), columns=["user"])
        ]
    )
    listener = stream.listener(
        lambda entry: None, on_head=lambda head: heads.append(head) or (hr.STOP if len(heads) == 2 else None)
    )
    with stream.publisher() as publisher:
        publisher.publish(order(1))
        publisher.head(second(20))
        assert ender.result() == [0]
        assert batches.result() == [0]
        publisher.head(second(50))
        assert listener.join(60)
        items = follower.result()
    assert heads == [Head(second(20), 1), Head(second(50), 1)]
    assert [item.key for item in items] == [second(1), second(20), second(50)]


def test_head_cannot_be_where_no_time_is(store: hr.Store) -> None:
    """The last hours of the year 9999 in the west are over in UTC."""
    stream = store.stream("s", Order, order_by="at")
    west = dt.timezone(dt.timedelta(hours=-8))
    with stream.publisher() as publisher:
        publisher.publish(order(0))
        with pytest.raises(KeyOrder, match="years"):
            publisher.head(dt.datetime.max.replace(tzinfo=west))
        publisher.publish(order(1))
    assert stream.head == order(1).at
    publish_all(stream, [order(2)])


def test_head_ends_a_listener_that_waits_for_a_key(store: hr.Store) -> None:
    stream = store.stream("s", Order, order_by="at")
    listener = stream.listener(lambda entry: None, until=hr.at_key(second(20)))
    with stream.publisher() as publisher:
        publisher.publish(order(1))
        publisher.head(second(20))
        assert listener.join(60)
    assert listener.error is None


def test_listening_up_to_a_key_ends_at_once_if_head_is_there_already(store: hr.Store) -> None:
    stream = store.stream("s", Order, order_by="at")
    with stream.publisher() as publisher:
        for n in range(10):
            publisher.publish(order(n))
        publisher.head(second(20))
    for start, until in ((hr.END, 20), (hr.END, 15), (10, 20), (9, 20), (3, 2), (hr.at_key(second(30)), 20)):
        listening = in_thread(
            lambda start=start, until=until: [
                entry.index for entry in stream.listen(start, until=hr.at_key(second(until)), follow=True)
            ]
        )
        assert listening.result(10) == ([9] if start == 9 else [])


def test_head_reaches_a_listener_in_another_process(store: hr.Store) -> None:
    stream = store.stream("numbers", Number, order_by="n")
    listening = child("heads", store.path, "numbers", 30)
    assert line_of(listening) == "ready"
    with stream.publisher() as publisher:
        publisher.publish(Number(1))
        publisher.head(20)
        publisher.head(30)
        assert end(listening).split() == ["entry", "1", "head", "20", "head", "30", "ended"]
