"""Orders and payments, matched in the order of their times; what is not paid within the hour is reported.

A TailProduce job on Spark: two streams in, one stream out, a state for each order. `on_head` is called as
time passes, also when nothing happens: that is what finds an order to which nothing happened.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import headrace as hr

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Order:
    at: datetime
    order: int
    amount: float


@dataclass(frozen=True, slots=True)
class Payment:
    at: datetime
    order: int
    amount: float


@dataclass(frozen=True, slots=True)
class Outcome:
    at: datetime
    order: int
    what: str


@dataclass
class Open:
    """What is remembered for each order while it is open."""

    missing: float = 0.0
    since: datetime | None = None


class Matching:
    State = Open

    def on_entry(self, stream: str, entry: hr.Entry, state: Open) -> Outcome | None:
        value = entry.value
        if stream == "orders":
            state.missing, state.since = value.amount, value.at
            return None
        if state.since is None:
            return Outcome(value.at, value.order, "paid too late")
        state.missing -= value.amount
        return close(state, value.at, value.order, "paid") if state.missing <= 0 else None

    def on_head(self, now: datetime, state: Open, order: int) -> Outcome | None:
        return close(state, now, order, "not paid") if state.since and now - state.since > HOUR else None


def close(state: Open, at: datetime, order: int, what: str) -> Outcome:
    state.missing, state.since = 0.0, None  # as new: nothing is kept for it any more
    return Outcome(at, order, what)


shutil.rmtree("shop-data", ignore_errors=True)
orders = [Order(NOON + timedelta(minutes=n), n, 10.0) for n in range(100)]
payments = [Payment(NOON + timedelta(minutes=2 * n + 1), n, 10.0) for n in range(0, 100, 2) if n != 42]
evening = NOON + 8 * HOUR

with hr.open("shop-data") as store:
    for name, kind, entries in (("orders", Order, orders), ("payments", Payment, payments)):
        with store.stream(name, kind, order_by="at").publisher() as publisher:
            for entry in entries:
                publisher.publish(entry)
            publisher.head(evening)  # nothing more came before the evening

spark = hr.spark.session("shop-data", master="local[2]", log="shop-data/spark.log")
job = hr.spark.tail_produce(
    spark,
    inputs={"orders": Order, "payments": Payment},
    output="outcomes",
    output_type=Outcome,
    partition_by="order",
    head_every=timedelta(minutes=15),
)
job.producer(Matching)
job.run("shop-data/checkpoint")

outcomes = [entry.value for entry in hr.open("shop-data").stream("outcomes", Outcome, "at").listen()]
paid = [each.order for each in outcomes if each.what == "paid"]
print(f"{len(paid)} of {len(orders)} orders were paid in time")
for each in [each for each in outcomes if each.order == 42]:
    print(f"order {each.order}: {each.what} at {each.at:%H:%M}")
assert outcomes == job.locally(orders=orders, payments=payments, head=evening), "plain Python says the same"
