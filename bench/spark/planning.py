"""Planning: how long Spark waits for the plan of a stream with very many segments."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, timed
from headrace.log import Log
from headrace.spark.origin import FileOrigin

_SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])
_ROWS = 100


def run(run: Run, spark: SparkSession) -> Iterator[Table]:
    segments = run.scaled(10_000, 1_000)
    run.say(f"planning a read of {segments:,} segments")
    with run.fresh() as path:
        with hr.open(path) as store:
            directory = store.stream("small", _SCHEMA, settings=hr.Settings(durability="os")).log.path
        with Log.open(directory) as log:
            for number in range(segments):
                log.append(pa.record_batch([pa.array(range(number, number + _ROWS))], schema=_SCHEMA))
                log.roll()
        origin = FileOrigin(str(path), "small")
        with timed() as planned:
            parts = origin.plan(origin.first_index(), origin.settled().next_index, None)
        reading = spark.read.format("headrace").option("path", str(path)).option("stream", "small")
        with timed() as asked:
            count = reading.load().rdd.getNumPartitions()
        with timed() as counted:
            rows = reading.load().count()
    assert count == len(parts)
    assert rows == segments * _ROWS
    yield Table(
        f"Planning a read of {segments:,} segments",
        "`load` and the partitions, with the processes that Spark starts for them; then counting all rows.",
        [
            Figure("plan, in Python", planned[0] * 1000, "ms"),
            Figure("plan, asked by Spark", asked[0] * 1000, "ms", aim=Aim(value=2000)),
            Figure("plan and count", counted[0] * 1000, "ms"),
        ],
    )
