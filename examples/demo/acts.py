"""The acts of the demo: each does one thing, and answers what is worth showing."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
from market import WINDOW_MINUTES, Fill, Fills, History, Quote, Trade, expected_windows
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from screen import bar, watched

import headrace as hr
from headrace.spark import TailProduce, tail_produce

PLACE = Path("demo-data")
STORE = PLACE / "store"
CHUNK = 100_000
WINDOW_ROWS = 120_000
"""Rows of a micro-batch of the windowed query, at most."""


def crash() -> list[str]:
    """The short act before: a writer is killed, its log recovered, damaged and repaired; what was kept."""
    script = Path(__file__).parent.parent / "crash_and_recover.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    (PLACE / "crash.txt").write_text(done.stdout)
    return [match.strip() for match in re.findall(r"^(.+?)\s+kept\s*$", done.stdout, re.MULTILINE)]


def publish(store: hr.Store, past: History) -> float:
    """The history goes into two streams, in batches. The seconds that took, until all was on the disk."""
    begun, done = time.perf_counter(), 0
    with bar("publishing", past.entries) as reached:
        for name, kind, table in (("quotes", Quote, past.quotes), ("trades", Trade, past.trades)):
            with store.stream(name, kind, order_by="at").publisher() as publisher:
                for at in range(0, table.num_rows, CHUNK):
                    publisher.publish_batch(table.slice(at, CHUNK))
                    reached(done := done + min(CHUNK, table.num_rows - at))
                publisher.head(past.end)
    return time.perf_counter() - begun


def fills_job(spark: SparkSession, entries: int) -> TailProduce:
    job = tail_produce(
        spark,
        inputs={"quotes": Quote, "trades": Trade},
        output="fills",
        output_type=Fill,
        partition_by="sym",
        buckets=2,
        batch_entries=max(1, entries // 6),
        store=STORE,
    )
    job.producer(Fills)
    return job


def windows(spark: SparkSession, total: int) -> list[dict[str, Any]]:
    """Fills by symbol and quarter of an hour, from a stream into a stream. Its batches."""
    fills = (
        spark.readStream.format("headrace")
        .option("path", str(STORE))
        .option("stream", "fills")
        .option("columns", "at,sym,qty,price")
        .option("maxRowsPerTrigger", WINDOW_ROWS)
        .load()
    )
    turnover = f.abs("qty") * f.col("price")
    by_window = (
        fills.withWatermark("at", "0 seconds")  # a stream's keys never go back: nothing comes late
        .groupBy(f.window("at", f"{WINDOW_MINUTES} minutes"), "sym")
        .agg(
            f.count("*").alias("fills"),
            f.sum(turnover).alias("turnover"),
            f.min("price").alias("low"),
            f.max("price").alias("high"),
        )
        .select(f.col("window.end").alias("at"), "sym", "fills", "turnover", "low", "high")
    )
    query = (
        by_window.writeStream.format("headrace")
        .option("path", str(STORE))
        .option("stream", "windows")
        .option("orderBy", "at")
        .option("checkpointLocation", str(PLACE / "checkpoints" / "windows"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    return watched(query, "windows of 15 minutes", total)


def same_windows(store: hr.Store, fills: pa.Table) -> bool:
    """Whether the windows are what NumPy makes of the fills."""
    by = [("at", "ascending"), ("sym", "ascending")]
    found = read(store, "windows").sort_by(by)
    expected = expected_windows(fills).sort_by(by)
    at = found.column("at").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return bool(
        at.equals(expected.column("at").cast(pa.int64()))
        and found.column("sym").equals(expected.column("sym"))
        and found.column("fills").equals(expected.column("turnover_count"))
        and np.allclose(found.column("turnover"), expected.column("turnover_sum"), rtol=1e-12)
    )


def archived(folder: Path, fills: pa.Table) -> bool:
    """Whether the Parquet files, in the order of their names, hold these fills."""
    found = pa.dataset.dataset(folder, format="parquet").to_table(columns=fills.column_names).sort_by("trade")
    return bool(found.equals(fills.cast(found.schema)))


def read(store: hr.Store, name: str) -> pa.Table:
    return pa.Table.from_batches(batch.records for batch in store.stream(name).listen_batches())
