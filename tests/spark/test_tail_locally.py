"""TailProduce without Spark: the local double gives what the reference gives; mistakes are told at once."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.kernel.errors import BadSettings, Closed, HeadraceError, KeyOrder, NotFound, SchemaMismatch
from headrace.spark import TailProduce, tail_produce
from headrace.stream.entry import Entry

from .jobs import Fill, Quote, expected_fills, fills, market, publish_market
from .tail_reference import EPOCH, reference

quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)


class Chatty:
    """Answers in every way there is; dicts in and out."""

    def on_entry(self, stream: str, entry: Entry, state: dict[str, Any]) -> Any:
        value = entry.value
        state["seen"] = state.get("seen", 0) + 1
        said = {"at": entry.key, "text": f"{stream} {entry.index} {value['who']} {state}"}
        match value["n"]:
            case 0:
                return None
            case 1:
                return said
            case 2:
                return [said, said]
            case 3:
                state.clear()
                return ()
        return (each for each in [said])

    def on_head(self, key: Any, state: dict[str, Any]) -> Any:
        state["ticks"] = state.get("ticks", 0) + 1
        return {"at": key, "text": f"tick {state}"}


KEYS: dict[str, Any] = {
    "int": (pa.int64(), lambda n: n - 5, 4),
    "float": (pa.float64(), lambda n: (n - 5) * 0.1, 0.1),
    "time": (
        pa.timestamp("ms", "UTC"),
        lambda n: EPOCH + dt.timedelta(milliseconds=n - 5),
        dt.timedelta(milliseconds=4),
    ),
}
entries = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from(["a", "bb", "", None]), st.integers(0, 4)),
    max_size=12,
)


@pytest.fixture(scope="module")
def streams() -> Iterator[hr.Store]:
    """Empty streams of every kind of key."""
    with tempfile.TemporaryDirectory() as folder, hr.open(Path(folder)) as store:
        for kind, (column, _, _) in KEYS.items():
            at = pa.field("at", column, nullable=False)
            for name in ("a", "b"):
                schema = pa.schema([at, ("who", pa.string()), ("n", pa.int64())])
                store.stream(f"{kind}_{name}", schema, "at").close()
            store.stream(f"{kind}_out", pa.schema([at, ("text", pa.string())]), "at").close()
        yield store


@pytest.mark.parametrize("kind", KEYS)
@quick
@given(entries, entries, st.booleans(), st.booleans(), st.none() | st.integers(0, 30))
def test_locally_gives_what_the_reference_gives(
    streams: hr.Store, kind: str, one: Any, other: Any, partitioned: bool, ticking: bool, head: int | None
) -> None:
    _, key_of, every = KEYS[kind]
    inputs: dict[str, list[Any]] = {f"{kind}_a": [], f"{kind}_b": []}
    for values, drawn in zip(inputs.values(), (one, other), strict=True):
        at = 0
        for step, who, n in drawn:
            at += step
            values.append({"at": key_of(at), "who": who, "n": n})
    job = tail_produce(
        None,
        inputs=list(inputs),
        output=f"{kind}_out",
        store=streams,
        partition_by="who" if partitioned else None,
        buckets=3,
        head_every=every if ticking else None,
    )
    producer = Chatty if ticking else type("Quiet", (), {"on_entry": Chatty.on_entry})
    job.producer(producer)
    keys = [value["at"] for values in inputs.values() for value in values]
    behind = key_of(100) if head is None else key_of(head)
    if head is None and keys:  # just behind the last entry: no tick can be there but at its own key
        behind = max(keys) + (dt.timedelta(microseconds=1) if kind == "time" else 1e-9)
    expected = reference(
        producer,
        inputs,
        key=lambda value: value["at"],
        partition=(lambda value: value["who"]) if partitioned else (lambda value: None),
        every=every if ticking else None,
        head=behind,
    )
    made = job.locally(**inputs) if head is None else job.locally(**inputs, head=behind)
    assert made == expected


def test_a_producer_is_tried_without_spark(store: hr.Store) -> None:
    values = market(60)
    publish_market(store, {"quotes": [], "trades": []}, head=0)
    job = fills(None, store.path)
    assert job.locally(**values, head=12) == expected_fills(values, 12)
    with pytest.raises(Closed, match="without a Spark session"):
        job.run(store.path / "checkpoint")


# --- mistakes


@pytest.fixture
def quotes(store: hr.Store) -> hr.Store:
    publish_market(store, market(4), head=9)
    return store


def make(store: hr.Store, **options: Any) -> TailProduce:
    options = {"inputs": {"quotes": Quote}, "output": "out", "output_type": Fill, **options}
    return tail_produce(None, store=store, **options)


@dataclass
class Other:
    at: dt.datetime
    sym: int
    price: str


MISTAKES: list[tuple[dict[str, Any], type[HeadraceError], str]] = [
    ({"inputs": []}, BadSettings, "at least one input"),
    ({"inputs": ["quotes", "quotes"]}, BadSettings, "twice"),
    ({"inputs": "nothere"}, NotFound, "no stream 'nothere'"),
    ({"inputs": {"quotes": Other}}, SchemaMismatch, "sym|at|price"),
    ({"output": "quotes"}, BadSettings, "an input and the output"),
    ({"output_type": None}, NotFound, "output_type"),
    ({"output_type": Other}, SchemaMismatch, "ordered by timestamp.*the inputs by int64"),
    ({"partition_by": "nofield"}, SchemaMismatch, "'nofield'.*not a field of stream 'quotes'"),
    ({"partition_by": {"other": "sym"}}, BadSettings, "'other'.*not an input"),
    (
        {"inputs": ["quotes", "trades"], "partition_by": {"quotes": "sym", "trades": "qty"}},
        SchemaMismatch,
        "fields of different types",
    ),
    ({"head_every": 0}, BadSettings, "positive"),
    ({"head_every": -1}, BadSettings, "positive"),
    ({"head_every": 0.5}, BadSettings, "head_every"),
    ({"head_every": "1s"}, BadSettings, "head_every"),
    ({"head_every": dt.timedelta(seconds=1)}, BadSettings, "timedelta"),
    ({"window": 5}, BadSettings, "start_key"),
    ({"start_key": 5, "window": -1}, BadSettings, "positive"),
    ({"start_key": "five"}, KeyOrder, "'five'"),
    ({"buckets": 0}, BadSettings, "buckets"),
    ({"batch_entries": 0}, BadSettings, "batch_entries"),
    ({"bucket": 3}, BadSettings, "bucket.*the options are"),
]


@pytest.mark.parametrize(("options", "kind", "told"), MISTAKES, ids=lambda value: str(value)[:40])
def test_mistakes_in_a_job_are_told_in_a_sentence(
    quotes: hr.Store, options: dict[str, Any], kind: type[HeadraceError], told: str
) -> None:
    with pytest.raises(kind, match=told) as raised:
        make(quotes, **options)
    assert "\n" not in str(raised.value)
    assert "out" not in quotes.streams(), "a job that is refused makes no stream"


class NoEntry:
    pass


class Ticking:
    def on_entry(self, stream: str, entry: Entry, state: Any) -> Any: ...

    def on_head(self, key: Any, state: Any) -> Any: ...


class Needy:
    class State:
        def __init__(self, size: int) -> None: ...

    def on_entry(self, stream: str, entry: Entry, state: Any) -> Any: ...


class Counting:
    State = Counter

    def on_entry(self, stream: str, entry: Entry, state: Any) -> Any: ...


@pytest.mark.parametrize(
    ("producer", "told"),
    [
        (NoEntry, "NoEntry has no method on_entry"),
        (Ticking, "head_every"),
        (Needy, "without arguments"),
        (Counting, "Counter cannot be a State"),
    ],
)
def test_a_class_that_cannot_produce_is_refused(quotes: hr.Store, producer: type, told: str) -> None:
    with pytest.raises((BadSettings, SchemaMismatch), match=told):
        make(quotes).producer(producer)


def test_a_job_without_a_producer_cannot_run(quotes: hr.Store) -> None:
    with pytest.raises(Closed, match=r"decorate a class with @job\.producer"):
        make(quotes).locally(quotes=[])


def test_entries_of_no_input_are_refused_locally(quotes: hr.Store) -> None:
    with pytest.raises(BadSettings, match="'trades' is not an input"):
        job = make(quotes)
        job.producer(Counts)
        job.locally(trades=[])


class Counts:
    def on_entry(self, stream: str, entry: Entry, state: dict[str, int]) -> Any:
        state["n"] = state.get("n", 0) + 1
        return Fill(entry.key, "n", float(state["n"]))


def test_outputs_have_the_key_of_their_cause(quotes: hr.Store) -> None:
    class Late(Counts):
        def on_entry(self, stream: str, entry: Entry, state: dict[str, int]) -> Any:
            return Fill(entry.key + 1, "late", 0.0)

    job = make(quotes)
    job.producer(Late)
    with pytest.raises(KeyOrder, match="order key 5, and was caused at 4"):
        job.locally(quotes=[Quote(4, "A", 1.0), Quote(4, "A", 1.0)])


def test_an_output_before_the_last_one_is_told_by_its_cause_too(quotes: hr.Store) -> None:
    class Wild(Counts):
        def on_entry(self, stream: str, entry: Entry, state: dict[str, int]) -> Any:
            return [Fill(entry.key + 3, "late", 0.0), Fill(entry.key, "right", 0.0)]

    job = make(quotes)
    job.producer(Wild)
    with pytest.raises(KeyOrder, match="order key 7, and was caused at 4"):
        job.locally(quotes=[Quote(4, "A", 1.0)])


def test_a_job_that_starts_later_leaves_out_ticks_and_entries_before(store: hr.Store) -> None:
    values = market(80)
    publish_market(store, {"quotes": [], "trades": []}, head=0)
    job = fills(None, store.path, start_key=7, window=4)
    made = job.locally(**values, head=20)
    assert made == expected_fills(values, 20, start=3, emit_from=7)
    assert made


def test_on_head_is_told_whose_state_it_is_if_it_asks(quotes: hr.Store) -> None:
    class Asking(Counts):
        def on_head(self, key: int, state: dict[str, int], partition: Any) -> Any:
            return Fill(key, f"{partition!r}", float(state["n"]))

    job = make(quotes, partition_by="sym", head_every=10)
    job.producer(Asking)
    values = [Quote(1, "A", 1.0), Quote(2, None, 1.0), Quote(3, "A", 1.0)]
    ticks = [each for each in job.locally(quotes=values, head=11) if each.at == 10]
    assert ticks == [Fill(10, "'A'", 2.0), Fill(10, "None", 1.0)]
