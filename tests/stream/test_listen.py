"""Listening from any place to any place, against a list as the model; and what listeners do in threads."""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.log import Finalize
from headrace.stream import Listener
from waiting import until

from .samples import PATIENCE_S, Number, child, end, in_thread, line_of, publish_all, temporary_store

PLACES = st.one_of(st.integers(0, 14), st.integers(-1, 14).map(hr.at_key), st.just(hr.START), st.just(hr.END))


def model_index(place: Any, keys: list[int]) -> int:
    if place in (None, hr.START):
        return 0
    if place == hr.END:
        return len(keys)
    return place if isinstance(place, int) else bisect_left(keys, place.key)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=4),
    st.lists(
        st.tuples(
            PLACES, st.none() | PLACES.filter(lambda place: place != hr.START), st.none() | st.integers(0, 9)
        ),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
    st.integers(1, 5),
)
def test_listening_is_slicing_a_list(
    steps: list[list[int]], wishes: list[Any], by_key: bool, per_segment: int
) -> None:
    """Batches of keys that grow by 0..3, in segments of a few entries; any start, end and count."""
    numbers: list[int] = []
    with temporary_store() as store:
        stream = store.stream(
            "s",
            Number,
            order_by="n" if by_key else None,
            settings=hr.Settings(finalize=Finalize(entries=per_segment)),
        )
        with stream.publisher() as publisher:
            for batch in steps:
                grown = [(numbers[-1] if numbers else 0) + sum(batch[: at + 1]) for at in range(len(batch))]
                publisher.publish_batch(pa.table({"n": pa.array(grown, pa.int64())}))
                numbers += grown
        keys = numbers if by_key else list(range(len(numbers)))
        for start, stop, count in wishes:
            first = model_index(start, keys)
            last = len(keys) if stop is None else model_index(stop, keys)
            expected = list(range(first, min(last, len(keys))))
            heard = list(stream.listen(start, until=stop, count=count))
            assert [entry.index for entry in heard] == expected[:count]
            assert [entry.key for entry in heard] == [keys[at] for at in expected[:count]]
            assert [entry.value.n for entry in heard] == [numbers[at] for at in expected[:count]]
            batches = stream.listen_batches(start, until=stop, columns=["n"])
            assert [n for b in batches for n in b.records.column(0).to_pylist()] == [
                numbers[at] for at in expected
            ]
            if count is not None and count <= len(expected):  # it ends although it follows
                following = stream.listen(start, until=stop, count=count, follow=True)
                assert [entry.index for entry in following] == expected[:count]
            called: list[int] = []
            limit = len(expected) if count is None else min(count, len(expected))
            listener = stream.listener(
                lambda entry, called=called: called.append(entry.index), start, until=stop, count=limit
            )
            assert listener.join(PATIENCE_S)
            assert called == expected[:limit]


def test_a_follower_that_begins_beyond_the_end_waits_for_its_index(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    ahead = in_thread(lambda: [entry.value.n for entry in stream.listen(5, count=2, follow=True)])
    publish_all(stream, map(Number, range(8)))
    assert ahead.result() == [5, 6]


def test_following_goes_on_over_segments_and_publishers(store: hr.Store) -> None:
    stream = store.stream("s", Number, settings=hr.Settings(finalize=Finalize(entries=3)))
    follower = in_thread(lambda: [entry.value.n for entry in stream.listen(follow=True, until=30)])
    for part in range(3):
        publish_all(stream, map(Number, range(part * 10, part * 10 + 10)))
    assert follower.result() == list(range(30))


@pytest.mark.parametrize("count", [-1, 1.5, "all"])
def test_what_is_no_number_of_entries_is_refused(store: hr.Store, count: Any) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, [Number(1)])
    with pytest.raises(hr.Refused, match="count"):
        list(stream.listen(count=count))


@pytest.mark.parametrize("wrong", [-1, "middle", 1.5, b"x", (1,)], ids=repr)
def test_a_place_that_is_none_is_refused(store: hr.Store, wrong: Any) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, [Number(1)])
    with pytest.raises(hr.Refused):
        list(stream.listen(wrong))
    if wrong != -1:
        with pytest.raises(hr.Refused):
            list(stream.listen(until=wrong))
    with pytest.raises(hr.Refused):
        stream.listener(print, wrong)


@pytest.mark.parametrize("key", ["x", 1.5, None])
@pytest.mark.parametrize("order_by", [None, "n"])
def test_a_key_of_another_type_is_refused(store: hr.Store, key: Any, order_by: str | None) -> None:
    stream = store.stream("s", Number, order_by=order_by)
    publish_all(stream, [Number(1)])
    with pytest.raises(hr.Refused):
        list(stream.listen(hr.at_key(key)))
    with pytest.raises(hr.Refused):
        list(stream.listen(until=hr.at_key(key)))


def test_listening_to_a_column_that_is_not_there_is_refused(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    with pytest.raises(hr.Refused, match="nope"):
        list(stream.listen_batches(columns=["nope"]))


def test_a_closed_stream_is_not_listened_to(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    stream.close()
    for listen in (stream.listen, stream.listen_batches, stream.listen_with_heads):
        with pytest.raises(hr.Closed):
            list(listen())
    with pytest.raises(hr.Closed):
        stream.listener(print)


def test_closing_the_store_ends_those_who_follow(place: Path) -> None:
    """Also those who began before the stream's schema grew."""
    from dataclasses import make_dataclass

    Grown = make_dataclass("Number", [("n", int), ("more", int | None)])
    store = hr.open(place / "data")
    publish_all(store.stream("s", Number), [Number(0)])
    stream = store.stream("s", Grown)
    seen = threading.Event()

    def follow() -> int:
        count = 0
        for _ in stream.listen(follow=True):
            count += 1
            seen.set()
        return count

    before = in_thread(follow)
    assert seen.wait(PATIENCE_S)
    with stream.publisher() as publisher:  # the schema grows here
        publisher.publish(Grown(1, 1))
    after = [in_thread(follow) for _ in range(4)]  # some of them begin just as the store is closed
    store.close()
    assert before.result() in (1, 2)
    for follower in after:
        with contextlib.suppress(hr.Closed):
            assert follower.result() in (0, 1, 2)


# --- listeners


def test_callbacks_come_in_order_one_at_a_time_in_a_thread_of_their_own(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    calls: list[tuple[int, int]] = []
    inside = [0]

    def hear(entry: Any) -> None:
        inside[0] += 1
        assert inside[0] == 1
        calls.append((entry.value.n, threading.get_ident()))
        inside[0] -= 1

    listeners = [stream.listener(hear, until=200)]
    publish_all(stream, map(Number, range(200)))
    assert listeners[0].join(PATIENCE_S)
    assert [n for n, _ in calls] == list(range(200))
    assert len({thread for _, thread in calls}) == 1
    assert threading.get_ident() not in {thread for _, thread in calls}


def stop_by_itself(listener: list[Listener], entry: Any) -> Any:
    until(lambda: listener)
    listener[0].stop()


def stop_by_answer(listener: list[Listener], entry: Any) -> Any:
    return hr.STOP


@pytest.mark.parametrize("how", [stop_by_itself, stop_by_answer])
def test_a_callback_can_end_its_listener(store: hr.Store, how: Any) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, map(Number, range(100)))
    mine: list[Listener] = []
    calls: list[int] = []

    def hear(entry: Any) -> Any:
        calls.append(entry.index)
        return how(mine, entry) if entry.index == 41 else None

    mine.append(stream.listener(hear))
    assert mine[0].join(PATIENCE_S)
    assert calls == list(range(42))
    assert (mine[0].state, mine[0].error, mine[0].index) == ("ended", None, 42)


def test_a_listener_ends_after_a_count_or_before_a_place(store: hr.Store) -> None:
    stream = store.stream("s", Number, order_by="n")
    publish_all(stream, map(Number, range(0, 100, 2)))
    for options, expected in (
        ({"count": 7}, 7),
        ({"count": 0}, 0),
        ({"until": 9}, 9),
        ({"until": hr.at_key(11)}, 6),
        ({"until": hr.END}, 50),
        ({"until": 30, "count": 50}, 30),
    ):
        calls: list[int] = []
        listener = stream.listener(lambda entry, calls=calls: calls.append(entry.index), **options)
        assert listener.join(PATIENCE_S)
        assert calls == list(range(expected))


def test_a_listener_can_be_ended_from_outside_while_it_waits(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, [Number(0)])
    calls: list[int] = []
    listener = stream.listener(lambda entry: calls.append(entry.index))
    until(lambda: listener.state == "caught_up")
    listener.stop()
    listener.stop()
    assert listener.join(PATIENCE_S)
    assert listener.join()
    assert (calls, listener.error, listener.state) == ([0], None, "ended")


def test_a_listener_is_behind_then_caught_up_then_behind_again(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, map(Number, range(10)))
    states: list[str] = []
    go_on = threading.Event()
    listener_box: list[Listener] = []

    def hear(entry: Any) -> None:
        until(lambda: listener_box)
        states.append(listener_box[0].state)
        if entry.index == 10:
            assert go_on.wait(PATIENCE_S)  # meanwhile more comes

    listener = stream.listener(hear)
    listener_box.append(listener)
    until(lambda: listener.state == "caught_up")
    assert states == ["behind"] * 10
    with stream.publisher() as publisher:
        publisher.publish(Number(10))
        publisher.flush()
        publisher.publish_batch(pa.table({"n": range(11, 20)}))
        publisher.flush()
    go_on.set()
    until(lambda: len(states) == 20 and listener.state == "caught_up")
    assert states[11:] == ["behind"] * 9
    listener.stop()


def test_a_listener_that_raises_hangs_or_sleeps_harms_nobody(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    release = threading.Event()

    def raises(entry: Any) -> None:
        raise LookupError("not today")

    def raises_closed(entry: Any) -> None:
        raise hr.Closed("something else that is closed")

    def exits(entry: Any) -> None:
        raise SystemExit

    good: list[int] = []
    bad = [stream.listener(call) for call in (raises, raises_closed, exits)]
    hanging = stream.listener(lambda entry: release.wait())
    fine = stream.listener(lambda entry: good.append(entry.value.n), until=1000)
    with stream.publisher() as publisher:
        for n in range(1000):
            publisher.publish(Number(n))
        publisher.flush()
        assert fine.join(PATIENCE_S)
    assert good == list(range(1000))
    for listener, kind in zip(bad, (LookupError, hr.Closed, SystemExit), strict=True):
        assert listener.join(PATIENCE_S)
        assert (listener.state, type(listener.error)) == ("ended", kind)
    assert hanging.state != "ended"
    release.set()
    hanging.stop()
    assert hanging.join(PATIENCE_S)


def test_closing_waits_for_calls_under_way_and_makes_no_more(place: Path) -> None:
    store = hr.open(place / "data")
    stream = store.stream("s", Number)
    publish_all(stream, map(Number, range(10)))
    entered, leave = threading.Event(), threading.Event()
    finished: list[int] = []

    def slow(entry: Any) -> None:
        entered.set()
        assert leave.wait(PATIENCE_S)
        finished.append(entry.index)

    stream.listener(slow)
    assert entered.wait(PATIENCE_S)
    closing = in_thread(store.close)
    with pytest.raises(AssertionError, match="hangs"):
        closing.result(0.2)  # it waits
    leave.set()
    closing.result()
    assert finished == [0]


def test_a_callback_may_close_the_store_it_listens_to(place: Path) -> None:
    store = hr.open(place / "data")
    stream = store.stream("s", Number)
    publish_all(stream, map(Number, range(10)))
    calls: list[int] = []

    def hear(entry: Any) -> None:
        calls.append(entry.index)
        store.close()

    listener = stream.listener(hear)
    assert listener.join(PATIENCE_S)
    assert (calls, listener.error) == ([0], None)


def test_a_callback_may_publish_what_it_hears_to_another_stream(store: hr.Store) -> None:
    source, target = store.stream("source", Number), store.stream("target", Number)
    with target.publisher() as out:
        listener = source.listener(lambda entry: out.publish(Number(entry.value.n * 2)) and None, until=50)
        publish_all(source, map(Number, range(50)))
        assert listener.join(PATIENCE_S)
    assert [entry.value.n for entry in target.listen()] == list(range(0, 100, 2))


def test_several_processes_listen_while_one_publishes(store: hr.Store) -> None:
    count = 3000
    stream = store.stream("s", Number, settings=hr.Settings(finalize=Finalize(entries=400)))
    listening = [child("listen", store.path, "s", count) for _ in range(2)]
    for process in listening:
        assert line_of(process) == "ready"
    with stream.publisher() as publisher:
        for n in range(count):
            publisher.publish(Number(n))
        for process in listening:  # they hear all of it although nobody flushed
            assert end(process).split() == [str(sum(range(count))), "True"]
