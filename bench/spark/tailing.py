"""Tailing: a TailProduce job over two streams, its rate with much to do and its latency with little."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, percentile, timed
from headrace.spark import TailProduce, tail_produce

_KEYS = 1_000
QUOTES = pa.schema(
    [
        pa.field("at", pa.int64(), False),
        pa.field("sym", pa.string(), False),
        pa.field("price", pa.float64(), False),
    ]
)
TRADES = pa.schema(
    [
        pa.field("at", pa.int64(), False),
        pa.field("sym", pa.string(), False),
        pa.field("qty", pa.int64(), False),
    ]
)
FILLS = pa.schema(
    [
        pa.field("at", pa.int64(), False),
        pa.field("sym", pa.string(), False),
        pa.field("cost", pa.float64(), False),
    ]
)


def run(run: Run, spark: SparkSession) -> Iterator[Table]:
    entries = run.scaled(2_000_000, 200_000)
    run.say(f"TailProduce over {entries:,} entries")
    with run.fresh() as path:
        _publish(path, entries)
        job = _job(spark, path)
        with timed() as spent:
            query = job.run(path / "checkpoint")
        batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
        steady = batches[1:]
        share = entries * len(steady) / max(len(batches), 1)
        working = sum(batch["durationMs"]["triggerExecution"] for batch in steady) / 1000
    table = Table(
        "TailProduce: two streams joined in key order, 1,000 states",
        "Entries are dicts; outputs are durable in the output stream. Steady: without the first batch, in "
        "which Spark starts its workers and its state store. Latency: from publish to the fill being "
        "readable, one entry at a time.",
    )
    if working:
        table.figures.append(Figure("entries, steady", share / working, "entries/s", aim=Aim(value=80_000)))
    table.figures.append(Figure("entries, with start and end", entries / spent[0], "entries/s"))
    with run.fresh() as path:
        latencies = _latencies(spark, path, run.scaled(40, 8))
    table.figures.append(Figure("latency, p50", percentile(latencies, 50) * 1000, "ms"))
    table.figures.append(Figure("latency, p99", percentile(latencies, 99) * 1000, "ms"))
    yield table


def _job(spark: SparkSession, path: Path) -> TailProduce:
    job = tail_produce(
        spark, inputs=["quotes", "trades"], output="fills", output_type=FILLS, partition_by="sym", store=path
    )

    @job.producer
    class Fills:
        def on_entry(self, stream, entry, state):  # type: ignore[no-untyped-def]
            value = entry.value
            if stream == "quotes":
                state["price"] = value["price"]
                return None
            return {"at": value["at"], "sym": value["sym"], "cost": value["qty"] * state.get("price", 0.0)}

    return job


def _publish(path: Path, entries: int) -> None:
    random = np.random.default_rng(1)
    names = pa.array([f"SYM{number:04d}" for number in range(_KEYS)])
    half = entries // 2
    with hr.open(path) as store:
        for name, schema in (("quotes", QUOTES), ("trades", TRADES)):
            with store.stream(name, schema, "at").publisher() as publisher:
                last = (
                    pa.array(random.random(half))
                    if name == "quotes"
                    else pa.array(random.integers(1, 100, half))
                )
                syms = names.take(pa.array(random.integers(0, _KEYS, half)))
                at = pa.array(np.sort(random.integers(0, half, half)))
                publisher.publish_batch(pa.table([at, syms, last], schema=schema))
                publisher.head(half + 1)


def _latencies(spark: SparkSession, path: Path, count: int) -> list[float]:
    """Seconds from a trade's publishing to its fill."""
    with hr.open(path) as store:
        quotes = store.stream("quotes", QUOTES, "at").publisher()
        trades = store.stream("trades", TRADES, "at").publisher()
        query = _job(spark, path).start(path / "checkpoint")
        fills = store.stream("fills").listen_with_heads(follow=True)
        taken = []
        try:
            for number in range(1, count + 4):
                began = time.perf_counter()
                trades.publish({"at": number * 10, "sym": "SYM", "qty": 1})
                trades.head(number * 10 + 5)
                trades.flush()
                quotes.head(number * 10 + 5)
                quotes.flush()
                while getattr(next(fills), "value", None) is None:
                    continue
                taken.append(time.perf_counter() - began)
        finally:
            query.stop()
            quotes.close()
            trades.close()
    return taken[3:]  # the first ones start everything
