"""Spark reading a stream through a node, beside Spark reading the same bytes from a directory."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, best
from bench.node.entries import BYTES, fresh_name
from bench.node.ours import Headrace
from bench.spark.data import HUNDRED_BYTES, batches
from bench.spark.scanning import scan_of
from headrace.spark import JavaMissing, session


def run(run: Run, node: Headrace) -> Iterator[Table]:
    try:
        spark = session(master="local[2]", settings={"spark.driver.memory": "4g"})
    except JavaMissing as error:
        run.say(f"Spark through the node is not measured: {error}")
        return
    try:
        yield _scans(run, spark, node)
    finally:
        spark.stop()


def _scans(run: Run, spark: SparkSession, node: Headrace) -> Table:
    rows, name = run.scaled(5_000_000, 1_000_000), fresh_name()
    run.say(f"Spark scans {rows:,} rows through the node")
    with run.fresh() as path, hr.open(path) as here, hr.connect(node.url) as there:
        for store in (here, there):
            with store.stream(name, HUNDRED_BYTES).publisher() as publisher:
                for batch in batches(HUNDRED_BYTES, rows):
                    publisher.publish_batch(batch)
        frames = {
            what: spark.read.format("headrace").option("stream", name).option(*where).load()
            for what, where in {"node": ("url", node.url), "directory": ("path", str(path))}.items()
        }
        times = best(3, {what: scan_of(frame) for what, frame in frames.items()})
    rate = {name: rows * BYTES / spent / 1e6 for name, spent in times.items()}
    return Table(
        f"Spark scans {rows:,} rows of 100 bytes through a node",
        "Every row to Spark's noop sink, local[2]; the node on the same two cores.",
        [Figure("full scan", rate["node"], "MB/s", "from a directory", rate["directory"], Aim(value=150))],
    )
