"""The engine: whatever the batches are, a producer gives what the plain reference gives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.log.keys import KeyColumn
from headrace.spark.engine import Arrived, Engine, Interval, Output, in_order, partition_key
from headrace.spark.merge import bucket_of
from headrace.spark.states import States
from headrace.stream.entry import Entry

from .tail_reference import EPOCH, reference

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


class In(NamedTuple):
    at: Any
    who: Any
    n: int


class Chatty:
    """Answers in every way there is, and forgets now and then."""

    def on_entry(self, stream: str, entry: Entry, state: dict[str, Any]) -> Any:
        value = entry.value
        state["seen"] = state.get("seen", 0) + 1
        said = (entry.key, stream, entry.index, value.who, dict(state))
        match value.n:
            case 0:
                return None
            case 1:
                return _Said(said)
            case 2:
                return [_Said(said), _Said(said)]
            case 3:
                return ()
            case 4:
                state.clear()
                return (_Said(said),)
        return self._slowly(said, state)

    def _slowly(self, said: Any, state: dict[str, Any]) -> Iterator[Any]:
        state["slow"] = state.get("slow", 0) + 1
        yield _Said(said)
        state["late"] = said[2]

    def on_head(self, key: Any, state: dict[str, Any]) -> Any:
        state["ticks"] = state.get("ticks", 0) + 1
        if state["ticks"] == 3:
            state.clear()
            return None
        return [_Said((key, dict(state)))] * (state["ticks"] % 2 + 1)


class _Said:
    """An output; a tuple would be several."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Said) and self.said == other.said

    def __repr__(self) -> str:
        return f"Said{self.said}"


class Keys(NamedTuple):
    """A kind of order key: the key of a small number, its column, and the distance of ticks."""

    of: Any
    type: pa.DataType
    every: Any
    number: Any

    @property
    def column(self) -> KeyColumn:
        return KeyColumn(pa.schema([pa.field("at", self.type, nullable=False)]), "at")


KEYS = {
    "int": Keys(lambda n: n - 7, pa.int64(), 3, 3),
    "unsigned": Keys(lambda n: n, pa.uint64(), 3, 3),
    "float": Keys(lambda n: (n - 7) * 0.1, pa.float64(), 0.1, 0.1),
    "rare": Keys(lambda n: (n - 7) / 3, pa.float64(), 0.7, 0.7),
    "time": Keys(
        lambda n: EPOCH + dt.timedelta(microseconds=n - 7),
        pa.timestamp("us", "UTC"),
        dt.timedelta(microseconds=3),
        3,
    ),
}
steps = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 5])
streams = st.lists(
    st.lists(st.tuples(steps, st.sampled_from(["a", "bb", "", None]), st.integers(0, 5)), max_size=14),
    min_size=1,
    max_size=3,
)


def inputs_of(drawn: list[list[tuple[int, Any, int]]], keys: Keys) -> dict[str, list[In]]:
    """Streams whose keys never go back, and often stay."""
    made: dict[str, list[In]] = {}
    for number, entries in enumerate(drawn):
        at = 0
        values = made[f"s{number}"] = []
        for step, who, n in entries:
            at += step
            values.append(In(keys.of(at), who, n))
    return made


def arrived_of(inputs: dict[str, list[In]], column: KeyColumn, partitioned: bool) -> list[Arrived]:
    made = []
    for stream, values in enumerate(inputs.values()):
        for index, value in enumerate(values):
            number = column.number(column.encode(value.at))
            partition = partition_key(value.who if partitioned else None)
            made.append(Arrived(number, stream, index, partition, Entry(index, value.at, value)))
    return sorted(made, key=lambda each: each[:3])


class Batches:
    """One bucket, batch after batch, with its states stored in between as Spark stores them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pages: dict[int, bytes] = {}

    def run(self, interval: Interval, arrived: list[Arrived]) -> list[Output]:
        states = States(dict, self._pages.get, self._save)
        outputs = list(self._engine.run(interval, arrived, states))
        states.store()
        return outputs

    def _save(self, page: int, raw: bytes | None) -> None:
        if raw is None:
            del self._pages[page]
        else:
            self._pages[page] = raw


def in_batches(
    engine: Engine, arrived: list[Arrived], cuts: list[Any], buckets: int, start: Any = None
) -> list[Any]:
    """The outputs of all buckets, batch after batch, as the sink puts them in order."""
    made: list[Any] = []
    workers = [Batches(engine) for _ in range(buckets)]
    for begin, stop in zip([start, *cuts], cuts, strict=False):
        batch: list[Output] = []
        for bucket, worker in enumerate(workers):
            mine = [
                each
                for each in arrived
                if (begin is None or each.number >= begin)
                and each.number < stop
                and bucket_of(each.entry.value.who, buckets) == bucket
            ]
            batch += worker.run(Interval(begin, stop), mine)
        made += [output.value for output in in_order(batch)]
    return made


@pytest.mark.parametrize("kind", KEYS)
@quick
@given(streams, st.sets(st.integers(0, 30)), st.integers(0, 30), st.booleans(), st.booleans())
def test_batches_of_any_size_give_what_the_reference_gives(
    kind: str, drawn: Any, cuts: set[int], head: int, partitioned: bool, ticking: bool
) -> None:
    keys = KEYS[kind]
    column, inputs = keys.column, inputs_of(drawn, keys)
    every = keys.every if ticking else None
    expected = reference(
        Chatty,
        inputs,
        partition=(lambda value: value.who) if partitioned else (lambda value: None),
        every=every,
        head=keys.of(head),
    )
    engine = Engine(Chatty(), list(inputs), column, keys.number if ticking else None)
    arrived = arrived_of(inputs, column, partitioned)
    numbers = [
        column.number(column.encode(keys.of(cut))) for cut in sorted({cut for cut in cuts if cut < head})
    ]
    end = column.number(column.encode(keys.of(head)))
    buckets = 3 if partitioned else 1
    if not partitioned:
        arrived = [each._replace(entry=Entry(each.at, each.entry.key, each.entry.value)) for each in arrived]
    assert in_batches(engine, arrived, [*numbers, end], buckets) == expected
    assert in_batches(engine, arrived, [end], buckets) == expected


@quick
@given(streams, st.sets(st.integers(0, 30)), st.integers(0, 12), st.integers(0, 12))
@example([[(3, "a", 5), (3, "a", 5)]], set(), 2, 5)
def test_what_was_made_before_the_start_is_not_given_but_done(
    drawn: Any, cuts: set[int], start: int, window: int
) -> None:
    keys = KEYS["int"]
    column, inputs = keys.column, inputs_of(drawn, keys)
    begin, emit_from, head = keys.of(start), keys.of(start + window), keys.of(31)
    expected = reference(Chatty, inputs, every=3, head=head, start=begin, emit_from=emit_from)
    engine = Engine(Chatty(), list(inputs), column, 3, emit_from)
    inner = sorted(keys.of(cut) for cut in cuts if begin < keys.of(cut) < head)
    arrived = arrived_of(inputs, column, partitioned=False)
    assert in_batches(engine, arrived, [*inner, head], 1, start=begin) == expected


def test_a_producer_without_on_head_is_never_ticked() -> None:
    class Quiet:
        def on_entry(self, stream: str, entry: Entry, state: Any) -> Any:
            state["n"] = state.get("n", 0) + 1
            return _Said(state["n"])

    keys = KEYS["int"]
    inputs = {"s": [In(1, "a", 1), In(20, "a", 1)]}
    engine = Engine(Quiet(), ["s"], keys.column, 3)
    assert in_batches(engine, arrived_of(inputs, keys.column, False), [50], 1) == [_Said(1), _Said(2)]


def test_ticks_that_nobody_waits_for_cost_nothing() -> None:
    keys = KEYS["int"]
    inputs = {"s": [In(1, "a", 4), In(10**15, "a", 1)]}  # the first entry is forgotten at once
    engine = Engine(Chatty(), ["s"], keys.column, 1)
    made = in_batches(engine, arrived_of(inputs, keys.column, False), [10**15 + 1], 1)
    assert len(made) == 2
