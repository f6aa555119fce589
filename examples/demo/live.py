"""The live part: entries published one by one while the job runs, and the time until their fills are there.

The market's clock goes on where the history ended. A trade's latency is the time from `publish` to the moment
a listener of the output gets its fill: through the disk, Spark and the disk again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
from market import SYMBOLS, Fill, History, Quote, Trade
from pyspark.sql.streaming.query import StreamingQuery

import headrace as hr
from headrace.spark import TailProduce
from headrace.stream import Publisher

TICK_S = 0.02
TRADES_A_TICK, QUOTES_A_TICK = 4, 12
WAIT_S = 60.0


@dataclass
class Live:
    """What was published live, and when its fills came back."""

    quotes: list[Quote] = field(default_factory=list)
    trades: list[Trade] = field(default_factory=list)
    said_s: dict[int, float] = field(default_factory=dict)
    back_s: dict[int, float] = field(default_factory=dict)
    begun_s: float = 0.0

    def latencies(self) -> list[tuple[float, float]]:
        """Second of publishing, and seconds until the fill was there; without the first, which warms up."""
        return [
            (said - self.begun_s, self.back_s[trade] - said)
            for trade, said in self.said_s.items()
            if said >= self.begun_s and trade in self.back_s
        ]

    def arrived(self, entry: hr.Entry) -> None:
        self.back_s[entry.value.trade] = time.perf_counter()


def run_live(store: hr.Store, job: TailProduce, checkpoint: str, past: History, seconds: float) -> Live:
    """Start the job where it ended, publish for some seconds, and wait until every fill is there."""
    live, rng = Live(), np.random.default_rng(11)
    fills = store.stream("fills", Fill, "at")
    listener = fills.listener(live.arrived, start=hr.END)
    query = job.start(checkpoint)
    try:
        with (
            store.stream("quotes", Quote, "at").publisher() as quotes,
            store.stream("trades", Trade, "at").publisher() as trades,
        ):
            market = _Market(live, quotes, trades, past, rng)
            market.step(1, 1)
            market.close()
            _until(lambda: live.back_s, query)  # a first one, for as long as it takes to start
            live.begun_s = begun = time.perf_counter()
            while time.perf_counter() - begun < seconds:
                market.step(QUOTES_A_TICK, TRADES_A_TICK)
                time.sleep(TICK_S)
            market.close()
            _until(lambda: len(live.back_s) == len(live.said_s), query)
    finally:
        query.stop()
        listener.stop()
    return live


class _Market:
    """Quotes and trades at the market's own time."""

    def __init__(
        self, live: Live, quotes: Publisher, trades: Publisher, past: History, rng: np.random.Generator
    ):
        self._live, self._quotes, self._trades, self._rng = live, quotes, trades, rng
        self._now, self._next = past.end, past.trades.num_rows

    def step(self, quotes: int, trades: int) -> None:
        for sym in self._rng.integers(0, len(SYMBOLS), quotes):
            quote = Quote(self._now, SYMBOLS[sym], round(20 + 9 * float(sym) + self._rng.normal(), 2))
            self._quotes.publish(quote)
            self._live.quotes.append(quote)
        for sym in self._rng.integers(0, len(SYMBOLS), trades):
            trade = Trade(self._now, self._next, SYMBOLS[sym], int(self._rng.integers(1, 100)))
            self._live.said_s[self._next] = time.perf_counter()
            self._trades.publish(trade)
            self._live.trades.append(trade)
            self._next += 1
        self.close()

    def close(self) -> None:
        """Tell that this moment is over: what has its time can be worked on from here on."""
        self._now += timedelta(seconds=TICK_S)
        self._quotes.head(self._now)
        self._trades.head(self._now)


def _until(done: Callable[[], object], query: StreamingQuery) -> None:
    deadline = time.perf_counter() + WAIT_S
    while not done():
        if time.perf_counter() > deadline or not query.isActive:
            raise RuntimeError(f"the fills of live trades did not come: {query.exception() or query.status}")
        time.sleep(0.01)
