"""TailProduce on Spark: whatever the batches, the types and the restarts, the plain reference is right."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import headrace as hr
from headrace.spark import tail_produce
from headrace.stream.entry import Entry

from .jobs import (
    Fill,
    Quote,
    expected_fills,
    fills,
    head_of,
    market,
    publish,
    publish_market,
    published,
)
from .tail_reference import EPOCH, reference

PATIENCE_S = 300.0


def until(condition: Callable[[], object], queries: list[Any]) -> None:
    """Wait until `condition` holds; a query's own error if one fails meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        for query in queries:
            if query.exception() is not None:
                raise query.exception()
            assert query.isActive, "the query has ended"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


@contextmanager
def one_row_a_time(spark: Any) -> Iterator[None]:
    """Let Spark hand the rows of a bucket over in as many pieces as there can be."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    yield
    spark.conf.set(name, before)


def test_a_job_gives_what_the_reference_gives_and_goes_on_where_it_was(
    spark: Any, store: hr.Store, place: Path
) -> None:
    first, second = market(200), market(100, seed=2, first=60)
    publish_market(store, first, head=51)
    fills(spark, store.path, batch_entries=200).run(place / "checkpoint")
    assert published(store, "fills", Fill) == expected_fills(first, 51)
    assert head_of(store, "fills") == 51

    publish_market(store, second, head=100)
    with one_row_a_time(spark):
        fills(spark, store.path, batch_entries=7000).run(place / "checkpoint")
    both = {name: first[name] + second[name] for name in first}
    expected = expected_fills(both, 100)
    assert published(store, "fills", Fill) == expected
    assert fills(None, store.path).locally(**both, head=100) == expected

    publish_market(store, {"quotes": [], "trades": []}, head=200)
    query = fills(spark, store.path).run(place / "checkpoint")
    assert published(store, "fills", Fill) == expected_fills(both, 200)
    assert head_of(store, "fills") == 200
    assert query.exception() is None


class Deposit(msgspec.Struct):
    when: dt.datetime
    account: int
    amount: float


class Withdrawal(msgspec.Struct):
    when: dt.datetime
    account: int
    amount: float
    reason: str | None = None


class Balance(msgspec.Struct):
    total: float = 0.0
    reasons: dict[str, int] = {}
    last: dt.datetime | None = None


class Statement(msgspec.Struct):
    when: dt.datetime
    text: str


class Overdraft(msgspec.Struct):
    when: dt.datetime
    account: int
    missing: float


class Accounts:
    State = Balance

    def on_entry(self, stream: str, entry: Entry, state: Balance) -> Any:
        value = entry.value
        if stream == "audits":  # rows of an Arrow schema: dicts
            return Statement(value["when"], f"{value['account']} {state.total:.2f} {state.reasons}")
        state.last = value.when
        if isinstance(value, Deposit):
            state.total += value.amount
            return None
        state.total -= value.amount
        if value.reason is not None:
            state.reasons[value.reason] = state.reasons.get(value.reason, 0) + 1
        return Overdraft(value.when, value.account, -state.total) if state.total < 0 else None

    def on_head(self, key: dt.datetime, state: Balance) -> Any:
        assert state.last is not None
        return [Statement(key, f"idle for {key - state.last}"), Statement(key, "")]


def second(number: float) -> dt.datetime:
    return EPOCH + dt.timedelta(days=20_000, seconds=number)


AUDITS = pa.schema([pa.field("when", pa.timestamp("us", "UTC"), nullable=False), ("account", pa.int64())])


def test_structs_unions_dicts_and_times(spark: Any, store: hr.Store, place: Path) -> None:
    money: list[Any] = []
    for n in range(120):
        made = Deposit if n % 3 else Withdrawal
        money.append(made(second(n // 5), n % 4, n * 0.7))
        if made is Withdrawal and n % 2:
            money[-1].reason = f"r{n % 5}"
    audits = [{"when": second(n * 3), "account": n % 5} for n in range(8)]
    publish(store, "money", money, second(23.5), type=Deposit | Withdrawal, order_by="when")
    publish(store, "audits", audits, second(30), type=AUDITS, order_by="when")
    job = tail_produce(
        spark,
        inputs={"money": Deposit | Withdrawal, "audits": None},
        output="said",
        output_type=Statement | Overdraft,
        partition_by="account",
        head_every=dt.timedelta(seconds=4),
        store=store,
        batch_entries=90,
        buckets=2,
    )
    job.producer(Accounts)
    expected = reference(
        Accounts,
        {"money": money, "audits": audits},
        key=lambda value: value["when"] if isinstance(value, dict) else value.when,
        partition=lambda value: value["account"] if isinstance(value, dict) else value.account,
        every=dt.timedelta(seconds=4),
        head=second(23.5),
    )
    assert {type(each) for each in expected} == {Statement, Overdraft}
    assert job.locally(money=money, audits=audits, head=second(23.5)) == expected
    job.run(place / "checkpoint")
    assert published(store, "said", Statement | Overdraft, "when") == expected


@dataclass
class Reading:
    minute: int
    tenth: int
    value: float


def moment(reading: Any) -> float:
    return reading.minute + reading.tenth / 10


class Sums:
    """The function is not stored: entries are dicts, and an output has the key of its cause."""

    def on_entry(self, stream: str, entry: Entry, state: dict[str, Any]) -> Any:
        state["sum"] = state.get("sum", 0.0) + entry.value["value"]
        return {"minute": entry.value["minute"], "tenth": 0, "value": state["sum"]}


def test_order_keys_made_by_a_function(spark: Any, store: hr.Store, place: Path) -> None:
    readings = [Reading(n // 20, n // 2 % 10, float(n)) for n in range(60)]
    publish(store, "readings", readings, 3.5, type=Reading, order_by=moment)
    store.stream("sums", Reading, moment).close()
    job = tail_produce(spark, inputs=["readings"], output="sums", store=store, head_every=0.5)
    job.producer(Sums)
    job.run(place / "checkpoint")
    with store.stream("sums", Reading, moment) as stream:
        made = [(entry.key, entry.value.value) for entry in stream.listen()]
    sums = [sum(range(n + 1)) for n in range(60)]
    assert made == [(moment(each), total) for each, total in zip(readings, sums, strict=True)]


@dataclass
class Ask:
    at: int
    id: str
    what: str


@dataclass
class Answer:
    at: int
    id: str
    total: float


class Totals:
    """Answers requests from what came before them: the real-time mode."""

    def on_entry(self, stream: str, entry: Entry, state: dict[str, float]) -> Any:
        value = entry.value
        if stream == "asks":
            return Answer(value.at, value.id, state.get(value.what, 0.0))
        state[value.what[:1]] = state.get(value.what[:1], 0.0) + value.cost
        return None


def test_chained_jobs_answer_requests_while_streams_grow(spark: Any, store: hr.Store, place: Path) -> None:
    first, rest = market(40), market(40, seed=3, first=12)
    publish_market(store, first, head=10)
    publish(store, "asks", [Ask(3, "one", "A"), Ask(7, "two", "B")], 11, type=Ask, order_by="at")
    upstream = fills(spark, store.path)
    totals = tail_produce(
        spark,
        inputs={"fills": Fill, "asks": Ask},
        output="answers",
        output_type=Answer,
        store=store,
        heartbeat_s=0.0,
    )
    totals.producer(Totals)
    queries = [upstream.start(place / "one")]
    try:
        queries.append(totals.start(place / "two"))
        until(lambda: head_of(store, "answers") == 10, queries)
        assert [each.id for each in published(store, "answers", Answer)] == ["one", "two"]

        publish_market(store, rest, head=30)
        publish(store, "asks", [Ask(15, "three", "A"), Ask(15, "four", "C")], 40, type=Ask, order_by="at")
        until(lambda: head_of(store, "answers") == 30, queries)
    finally:
        for query in queries:
            query.stop()
    both = {name: first[name] + rest[name] for name in first}
    made = expected_fills(both, 30)
    assert published(store, "fills", Fill) == made
    asks = [Ask(3, "one", "A"), Ask(7, "two", "B"), Ask(15, "three", "A"), Ask(15, "four", "C")]
    expected = reference(Totals, {"fills": made, "asks": asks}, head=30)
    assert [each.id for each in expected] == ["one", "two", "three", "four"]
    assert published(store, "answers", Answer) == expected


class Recent:
    """Remembers the quotes of the last ten keys, and nothing else: what the window of a warm-up promises."""

    def on_entry(self, stream: str, entry: Entry, state: dict[str, Any]) -> Any:
        kept = [each for each in state.get("kept", []) if each[0] > entry.key - 10]
        state["kept"] = [*kept, [entry.key, entry.value.price]]
        yield Fill(entry.key, str(entry.value.sym), sum(price for _, price in state["kept"]))


def test_a_warm_up_window_gives_what_a_full_run_gives_from_there(
    spark: Any, store: hr.Store, place: Path
) -> None:
    values = market(200)
    publish_market(store, values, head=60)
    job = tail_produce(
        spark,
        inputs={"quotes": Quote},
        output="late",
        output_type=Fill,
        partition_by="sym",
        buckets=2,
        start_key=30,
        window=10,
        store=store,
        batch_entries=60,
    )
    job.producer(Recent)
    full = reference(Recent, {"quotes": values["quotes"]}, partition=lambda value: value.sym, head=60)
    expected = [each for each in full if each.at >= 30]
    assert 0 < len(expected) < len(full)
    assert job.locally(quotes=values["quotes"], head=60) == expected
    job.run(place / "checkpoint")
    assert published(store, "late", Fill) == expected


def test_inputs_and_output_may_be_plain_dicts(spark: Any, store: hr.Store, place: Path) -> None:
    values = market(20)
    publish_market(store, values, head=50)
    publish(store, "names", [], type=Fill, order_by="at")
    job = tail_produce(spark, inputs=["quotes", "trades"], output="names", store=store, partition_by="sym")

    @job.producer
    class Names:
        def on_entry(self, stream: str, entry: Entry, state: dict[str, int]) -> Any:
            state[stream] = state.get(stream, 0) + 1
            return {"at": entry.key, "what": f"{stream} {entry.value['sym']} {state}", "cost": 0.5}

    plain = {name: [vars(value) for value in entries] for name, entries in values.items()}
    expected = reference(
        Names, plain, key=lambda value: value["at"], partition=lambda value: value["sym"], head=50
    )
    assert job.locally(**plain, head=50) == expected
    job.run(place / "checkpoint")
    assert published(store, "names") == expected
