"""The market of the demo: what is published, what is made of it, and what must come out.

Three days of quotes and trades from a seeded generator. Times are rounded to milliseconds, so that many
entries share one: what comes first is then decided by the stream's place among the inputs, and by the index.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr

BEGIN = datetime(2026, 7, 1, tzinfo=UTC)
DAYS = 3
SYMBOLS = [f"{a}{b}" for a in ("ALPHA", "BREEZE", "CORAL", "DELTA", "EMBER", "FJORD") for b in "ABCD"]
WINDOW_MINUTES = 15


@dataclass(frozen=True, slots=True)
class Quote:
    at: datetime
    sym: str
    price: float


@dataclass(frozen=True, slots=True)
class Trade:
    at: datetime
    trade: int
    sym: str
    qty: int


@dataclass(frozen=True, slots=True)
class Fill:
    """A trade with the price that was quoted when it happened, and what is held since."""

    at: datetime
    trade: int
    sym: str
    qty: int
    price: float
    position: int


@dataclass
class Book:
    """What is remembered for each symbol."""

    price: float = 0.0
    position: int = 0


class Fills:
    """The producer: each trade meets the last quote before it."""

    State = Book

    def on_entry(self, stream: str, entry: hr.Entry, book: Book) -> Fill | None:
        value = entry.value
        if stream == "quotes":
            book.price = value.price
            return None
        book.position += value.qty
        return Fill(value.at, value.trade, value.sym, value.qty, book.price, book.position)


@dataclass(frozen=True)
class History:
    """All that is published before Spark starts, as columns."""

    quotes: pa.Table
    trades: pa.Table
    end: datetime

    @property
    def entries(self) -> int:
        return int(self.quotes.num_rows + self.trades.num_rows)


def history(entries: int, seed: int = 7) -> History:
    """Three quotes for every trade."""
    rng = np.random.default_rng(seed)
    popular = 1 / np.arange(2, len(SYMBOLS) + 2)
    popular /= popular.sum()
    trades = entries // 4
    return History(
        _quotes(rng, popular, entries - trades), _trades(rng, popular, trades), BEGIN + timedelta(days=DAYS)
    )


def _quotes(rng: np.random.Generator, popular: np.ndarray, count: int) -> pa.Table:
    sym = rng.choice(len(SYMBOLS), count, p=popular)
    sym[: len(SYMBOLS)] = np.arange(len(SYMBOLS))[:count]  # the day opens with a quote for each
    moves = rng.normal(0, 1, count)
    price = np.empty(count)
    for each in range(len(SYMBOLS)):
        mine = sym == each
        walk = (
            np.cumsum(moves[mine]) * 0.12 / np.sqrt(max(1, mine.sum()))
        )  # as wild for rare ones as for others
        price[mine] = np.round((20 + 9 * each) * np.exp(walk), 2)
    return pa.table({"at": _times(rng, count, len(SYMBOLS)), "sym": _names(sym), "price": price})


def _trades(rng: np.random.Generator, popular: np.ndarray, count: int) -> pa.Table:
    sym = rng.choice(len(SYMBOLS), count, p=popular)
    qty = rng.integers(1, 100, count) * rng.choice([-1, 1], count)
    return pa.table({"at": _times(rng, count), "trade": np.arange(count), "sym": _names(sym), "qty": qty})


def _times(rng: np.random.Generator, count: int, opening: int = 0) -> pa.Array:
    """Sorted times in milliseconds: busy days, quiet nights; so many of them at the very beginning."""
    minutes = np.arange(DAYS * 1440)
    busy = 1.1 + np.sin((minutes % 1440 - 480) / 1440 * 2 * np.pi) + rng.random(minutes.size) * 0.3
    reached = np.concatenate([[0.0], np.cumsum(busy / busy.sum())])
    at = np.interp(np.sort(rng.random(count)), reached, np.arange(minutes.size + 1)) * 60_000
    at[:opening] = 0
    begin = int(BEGIN.timestamp() * 1000)
    return pa.array(begin + at.astype(np.int64), pa.timestamp("ms", "UTC"))


def _names(sym: np.ndarray) -> pa.Array:
    return pa.array(SYMBOLS).take(pa.array(sym))


# --- the same once more, in NumPy: what Spark's results are compared with


def expected_fills(quotes: pa.Table, trades: pa.Table) -> pa.Table:
    """Every trade with the last quote of its symbol: by searching, not by going through them in order."""
    quoted, prices = _plain(quotes, "at"), _plain(quotes, "price")
    at, qty = _plain(trades, "at"), _plain(trades, "qty")
    of_quote, of_trade = _codes(quotes), _codes(trades)
    price, position = np.zeros(len(at)), np.zeros(len(at), np.int64)
    for each in range(len(SYMBOLS)):
        mine, theirs = of_trade == each, of_quote == each
        found = np.searchsorted(quoted[theirs], at[mine], side="right")
        price[mine] = np.concatenate([[0.0], prices[theirs]])[found]
        position[mine] = np.cumsum(qty[mine])
    return trades.append_column("price", pa.array(price)).append_column("position", pa.array(position))


def expected_windows(fills: pa.Table) -> pa.Table:
    """Count and turnover of each symbol in each window that is over, by the end of the window."""
    at = _plain(fills, "at")
    width = WINDOW_MINUTES * 60_000_000
    ends = (at // width + 1) * width
    turnover = np.abs(_plain(fills, "qty")) * _plain(fills, "price")
    table = pa.table({"at": ends, "sym": fills.column("sym"), "turnover": turnover})
    over = table.filter(pa.array(ends <= at[-1]))
    return over.group_by(["at", "sym"]).aggregate([("turnover", "count"), ("turnover", "sum")])


def _plain(table: pa.Table, name: str) -> np.ndarray:
    column = table.column(name).combine_chunks()
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _codes(table: pa.Table) -> np.ndarray:
    return np.asarray(pc.index_in(table.column("sym").combine_chunks(), pa.array(SYMBOLS)))
