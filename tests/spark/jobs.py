"""Jobs that the tests of TailProduce run: on Spark, in plain Python, and in processes that are killed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.spark import TailProduce, tail_produce
from headrace.stream.entry import Entry

from .tail_reference import reference


@dataclass
class Quote:
    at: int
    sym: str | None
    price: float


@dataclass
class Trade:
    at: int
    sym: str | None
    qty: int


@dataclass
class Fill:
    at: int
    what: str
    cost: float


@dataclass
class LastQuote:
    price: float = 0.0
    trades: int = 0
    since: list[int] = field(default_factory=list)


class Fills:
    """Trades at the last quote of their symbol; at a tick, how many there were since the last one."""

    State = LastQuote

    def on_entry(self, stream: str, entry: Entry, state: LastQuote) -> Any:
        value = entry.value
        if stream == "quotes":
            state.price = value.price
            return None
        state.trades += 1
        state.since.append(entry.index)
        if value.qty == 0:
            return []
        return self._in_parts(value, state)

    def _in_parts(self, value: Trade, state: LastQuote) -> Iterator[Fill]:
        for part in range(value.qty):
            yield Fill(value.at, f"{value.sym} {part} {state.trades}", value.qty * state.price)

    def on_head(self, key: int, state: LastQuote) -> Any:
        made = Fill(key, f"ticks {state.since}", float(state.trades))
        state.trades, state.since = 0, []
        if key % 3 == 0:
            state.price = 0.0  # as new: forgotten
        return made


def market(count: int, seed: int = 1, first: int = 0) -> dict[str, list[Any]]:
    """Quotes and trades with many ties, within a key and between the streams."""
    rnd = random.Random(seed)
    quotes = [
        Quote(first + at // 4, rnd.choice(["A", "BB", "C", "D", None]), rnd.random()) for at in range(count)
    ]
    trades = [
        Trade(first + at // 3, rnd.choice(["A", "BB", "C", "E", None]), rnd.randrange(3))
        for at in range(count * 3 // 4)
    ]
    return {"quotes": quotes, "trades": trades}


def publish(store: hr.Store, name: str, values: Iterable[Any], head: Any = None, **stream: Any) -> None:
    with store.stream(name, **stream).publisher() as publisher:
        for value in values:
            publisher.publish(value)
        if head is not None:
            publisher.head(head)


def publish_market(store: hr.Store, values: dict[str, list[Any]], head: int) -> None:
    publish(store, "quotes", values["quotes"], head, type=Quote, order_by="at")
    publish(store, "trades", values["trades"], head, type=Trade, order_by="at")


def fills(spark: Any, path: Path | None = None, **options: Any) -> TailProduce:
    """In a directory, or with the option `url` on a node."""
    options = {"buckets": 3, "head_every": 10, "partition_by": "sym", **options}
    job = tail_produce(
        spark,
        inputs={"quotes": Quote, "trades": Trade},
        output="fills",
        output_type=Fill,
        store=path,
        **options,
    )
    job.producer(Fills)
    return job


def expected_fills(values: dict[str, list[Any]], head: int, **options: Any) -> list[Fill]:
    return reference(Fills, values, partition=_symbol, every=10, head=head, **options)


def _symbol(value: Any) -> Any:
    return value.sym


def published(store: hr.Store, name: str, kind: Any = None, order_by: Any = "at") -> list[Any]:
    """All that is in a stream."""
    with store.stream(name, kind, order_by) if kind is not None else store.stream(name) as stream:
        return [entry.value for entry in stream.listen()]


def head_of(store: hr.Store, name: str) -> Any:
    """HEAD of a stream with whole numbers as keys; None if it has never moved."""
    with store.stream(name) as stream:
        settled: int = stream.log.settled.head_key
        return settled - (1 << 63) if settled else None
