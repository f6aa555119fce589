"""The entry that is measured: five fields, as a dataclass and as Arrow, and a row of ten columns."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import headrace as hr

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Event:
    number: int
    at: dt.datetime
    user: str
    amount: float
    paid: bool


def events(count: int) -> list[Event]:
    return [Event(n, START + n * _MICROSECOND, f"user{n % 1000}", n * 0.5, n % 2 == 0) for n in range(count)]


def table(count: int) -> pa.Table:
    """The same entries as one Arrow table."""
    numbers = pa.array(range(count), pa.int64())
    first_us = int(START.timestamp()) * 1_000_000
    at = pa.array(range(first_us, first_us + count), pa.int64()).view(pa.timestamp("us", tz="UTC"))
    users = pa.array([f"user{n % 1000}" for n in range(count)])
    amounts = pa.array([n * 0.5 for n in range(count)])
    paid = pa.array([n % 2 == 0 for n in range(count)])
    return pa.table([numbers, at, users, amounts, paid], names=["number", "at", "user", "amount", "paid"])


def ten_columns(count: int) -> pa.Table:
    return pa.table({f"c{n}": pa.array(range(n, n + count), pa.int64()) for n in range(10)})


def open_stream(store: hr.Store, durability: str = "os") -> hr.Stream:
    settings = hr.Settings(durability=durability)  # type: ignore[arg-type]
    return store.stream("events", Event, order_by="at", settings=settings)


def fill(path: Path, count: int, batch_rows: int = 65_536) -> None:
    """A store at `path` whose stream `events` has `count` entries."""
    rows = table(count)
    with hr.open(path) as store, open_stream(store).publisher() as publisher:
        for at in range(0, count, batch_rows):
            publisher.publish_batch(rows.slice(at, batch_rows))
