"""headrace on Spark, shown: two streams in, a job over both, windows, an archive, and every number checked.

    make demo        or        python examples/demo

Everything is in `demo-data`, made anew each time: the store, the archive, and `report.html` with plots. The
exit code is 1 if a check does not hold.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
from dataclasses import asdict
from typing import Any

import acts
import numpy as np
import pyarrow as pa
from acts import PLACE, STORE
from live import Live, run_live
from market import History, expected_fills, history
from pyspark.sql import SparkSession
from report import Story, write_report
from screen import Checks, console, facts, results, title, watched

import headrace as hr
from headrace.spark import session

ENTRIES = 2_400_000
LIVE_S = 8.0


def main() -> int:
    wanted = argparse.ArgumentParser(prog="demo", description=__doc__.splitlines()[0])
    wanted.add_argument(
        "--entries", type=int, default=ENTRIES, help="how many to publish before Spark starts"
    )
    wanted.add_argument("--live", type=float, default=LIVE_S, help="seconds of the live part")
    chosen = wanted.parse_args()
    logging.getLogger("headrace").setLevel(logging.ERROR)
    shutil.rmtree(PLACE, ignore_errors=True)
    checks = Checks()
    try:
        story = play(checks, chosen.entries, chosen.live)
    except hr.HeadraceError as error:
        console.print(f"\n[red]{error.code}[/]: {error}")
        return 1
    story.seconds = time.perf_counter() - story.begun_s
    write_report(PLACE / "report.html", story, checks.held)
    console.print(
        f"\n{len(checks.held)} checks, {'[green]all hold' if checks.all_held else '[red]NOT all hold'}[/]; "
        f"{story.seconds:.0f} s. Plots: [bold]{PLACE}/report.html[/]\n"
    )
    return 0 if checks.all_held else 1


def play(checks: Checks, entries: int, live_s: float) -> Story:
    story = Story(begun_s=time.perf_counter())
    title(1, "A writer is killed, its log recovered, damaged and repaired")
    for promise in acts.crash():
        checks.check(promise, True)

    title(2, "Quotes and trades of three days are published")
    past = history(entries)
    with hr.open(STORE) as store:
        seconds = acts.publish(store, past)
        story.published, story.publish_rate = past.entries, past.entries / seconds
        facts(
            [
                ("quotes, trades", f"{past.quotes.num_rows:,}, {past.trades.num_rows:,}"),
                ("entries a second, durable", int(story.publish_rate)),
            ]
        )
        with console.status("   Spark starts"):
            spark = session(STORE, log=PLACE / "spark.log")
        try:
            on_spark(spark, store, past, story, checks, live_s)
        finally:
            spark.stop()
    return story


def on_spark(
    spark: SparkSession, store: hr.Store, past: History, story: Story, checks: Checks, live_s: float
) -> None:
    title(3, "TailProduce: each trade meets the last quote before it")
    job, checkpoint = acts.fills_job(spark, past.entries), str(PLACE / "checkpoints" / "fills")
    story.job = watched(job.start(checkpoint, available_now=True), "trades meet quotes", past.entries)
    facts([("entries in", past.entries), ("entries a second", int(rate(story.job)))])
    fills = expected_fills(past.quotes, past.trades)
    checks.check("every fill is what NumPy makes of the same entries", same(store, fills))

    title(4, f"Live: published one by one for {live_s:.0f} s while the job runs")
    live = run_live(store, job, checkpoint, past, live_s)
    story.live = live.latencies()
    took = np.array([each[1] for each in story.live])
    facts(
        [
            ("trades, quotes", f"{len(live.trades):,}, {len(live.quotes):,}"),
            (
                "from publish to a listener of the output",
                f"p50 {np.median(took):.2f} s, p99 {np.quantile(took, 0.99):.2f} s",
            ),
        ]
    )
    fills = expected_fills(*together(past, live))
    checks.check("every live trade has its fill, once", same(store, fills))

    title(5, "Windows of 15 minutes by symbol, from a stream into a stream")
    story.windows = acts.windows(spark, fills.num_rows)
    table = acts.read(store, "windows")
    story.results = table
    facts([("windows", table.num_rows), ("fills a second", int(rate(story.windows)))])
    checks.check("windows, counts and turnover equal NumPy's", acts.same_windows(store, fills))

    title(6, "An archive in Parquet, by day")
    done = hr.spark.archive(spark, store, "fills", to=PLACE / "archive" / "fills")
    facts([("files", done.files), ("MB", f"{done.bytes / 1e6:.1f}")])
    checks.check(
        "the archive holds every fill, in its order", acts.archived(PLACE / "archive" / "fills", fills)
    )

    title(7, "What came of it")
    results(["symbol", "fills", "turnover", "low", "high"], story.best())


def rate(batches: list[dict[str, Any]]) -> float:
    return sum(each["entries"] for each in batches) / max(1e-9, sum(each["seconds"] for each in batches))


def same(store: hr.Store, expected: pa.Table) -> bool:
    found = acts.read(store, "fills")
    return bool(found.equals(expected.cast(found.schema)))


def together(past: History, live: Live) -> tuple[pa.Table, pa.Table]:
    """What was published at once and what was published live."""
    tables = []
    for table, entries in ((past.quotes, live.quotes), (past.trades, live.trades)):
        rows = pa.Table.from_pylist([asdict(each) for each in entries])
        tables.append(pa.concat_tables([table, rows.cast(table.schema)]))
    return tables[0], tables[1]


if __name__ == "__main__":
    sys.exit(main())
