"""A typed stream: two kinds of events, one publisher, a listener that follows, and a table at the end."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

import headrace as hr
from headrace.stream import Entry


@dataclass(frozen=True, slots=True)
class Ordered:
    at: datetime
    order: int
    amount: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    at: datetime
    order: int
    reason: str | None = None


shutil.rmtree("stream-data", ignore_errors=True)
noon = datetime(2026, 7, 1, 12, tzinfo=UTC)

with hr.open("stream-data") as store:
    events = store.stream("events", Ordered | Cancelled, order_by="at")

    totals: dict[int, float] = {}

    def count(entry: Entry) -> object:
        match entry.value:
            case Ordered(order=order, amount=amount):
                totals[order] = amount
            case Cancelled(order=order):
                totals.pop(order, None)
        return hr.STOP if entry.index == 3 else None

    listener = events.listener(count)  # in a thread of its own; it is woken by each entry

    with events.publisher() as publisher:
        publisher.publish(Ordered(noon, 1, 9.5))
        publisher.publish(Ordered(noon + timedelta(minutes=1), 2, 20.0))
        publisher.publish(Cancelled(noon + timedelta(minutes=2), 1, "too late"))
        publisher.publish(Ordered(noon + timedelta(minutes=3), 3, 1.25))
        publisher.flush()
        print("durable up to index", publisher.durable_index)

    listener.join()
    print("open orders:", totals)

    print("from 12:02 on:")
    for entry in events.listen(start=hr.at_key(noon + timedelta(minutes=2))):
        print(" ", entry.index, entry.value)

    table = pa.Table.from_batches(
        batch.records for batch in events.listen_batches(columns=["_type", "order"])
    )
    print(table.group_by("_type").aggregate([("order", "count")]).sort_by("_type").to_pylist())
