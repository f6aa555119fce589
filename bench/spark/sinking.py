"""Sinking: Spark writing a DataFrame into a stream, until it is durable, beside the same into Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.measure import Aim, Figure, Run, Table, best, timed
from bench.spark.data import TEN_COLUMNS, batches


def run(run: Run, spark: SparkSession) -> Iterator[Table]:
    rows = run.scaled(10_000_000, 500_000)
    run.say(f"writing {rows:,} rows from Spark")
    with run.fresh() as path:
        path.mkdir()
        source = str(path / "rows.parquet")
        with pq.ParquetWriter(source, TEN_COLUMNS, compression="none") as writer:
            for batch in batches(TEN_COLUMNS, rows):
                writer.write_batch(batch)
        times = best(
            run.scaled(3, 1),
            {
                "headrace": lambda: _to_headrace(run, spark, source, "once"),
                "headrace, streaming": lambda: _to_headrace(run, spark, source, "streaming"),
                "Parquet": lambda: _to_parquet(run, spark, source),
            },
        )
    rate = {name: rows / spent / 1e6 for name, spent in times.items()}
    aim = Aim(value=0.7)
    yield Table(
        f"Spark writes {rows:,} rows of ten typed columns",
        "From a Parquet file. headrace: staged by the tasks, merged by order key, appended as one atomic "
        "group and synced. Parquet: uncompressed, then `sync`; no order, no group.",
        [
            Figure("df.write", rate["headrace"], "M rows/s", "Parquet", rate["Parquet"], aim),
            Figure("writeStream", rate["headrace, streaming"], "M rows/s", "Parquet", rate["Parquet"], aim),
        ],
    )


def _to_headrace(run: Run, spark: SparkSession, source: str, how: str) -> float:
    with run.fresh() as path, timed() as spent:
        options = {"path": str(path / "store"), "stream": "rows", "orderBy": "at"}
        if how == "once":
            spark.read.parquet(source).write.format("headrace").mode("append").options(**options).save()
        else:
            frame = spark.readStream.schema(spark.read.parquet(source).schema).parquet(_folder(source))
            writing = frame.writeStream.format("headrace").options(**options)
            writing = writing.option("checkpointLocation", str(path / "checkpoint")).trigger(
                availableNow=True
            )
            query = writing.start()
            query.awaitTermination()
    return spent[0]


def _to_parquet(run: Run, spark: SparkSession, source: str) -> float:
    with run.fresh() as path, timed() as spent:
        spark.read.parquet(source).write.option("compression", "none").parquet(str(path))
        os.sync()
    return spent[0]


def _folder(source: str) -> str:
    """Streaming reads of files take a directory, or a pattern."""
    return str(Path(source).parent / "*.parquet")
