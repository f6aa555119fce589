"""Scanning: Spark reading headrace beside Spark reading Parquet and JSON lines, the same rows in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, best, timed
from bench.spark.data import HUNDRED_BYTES, HUNDRED_LETTERS, TEN_COLUMNS, batches

_NOTE = (
    "Every row to Spark's noop sink: it asks for all rows and does nothing with them. local[2], page "
    "cache warm. Parquet is read by Spark's own reader in the JVM; headrace comes through a Python worker."
)


def run(run: Run, spark: SparkSession) -> Iterator[Table]:
    rows = run.scaled(10_000_000, 1_000_000)
    yield _scans(run, spark, rows, TEN_COLUMNS, "ten typed columns", Aim(ratio=0.8))
    yield _scans(run, spark, rows, HUNDRED_BYTES, "100 bytes", Aim(ratio=1.0))
    yield _scans(run, spark, rows, HUNDRED_LETTERS, "100 letters", None)


def _scans(run: Run, spark: SparkSession, rows: int, schema: pa.Schema, what: str, aim: Aim | None) -> Table:
    run.say(f"scanning {rows:,} rows of {what}")
    with run.fresh() as path:
        _write_all(spark, path, schema, rows)
        stream = spark.read.format("headrace").option("path", str(path)).option("stream", "rows")
        frames = {
            "headrace": stream.load(),
            "Parquet, uncompressed": spark.read.parquet(f"{path}/plain.parquet"),
            "Parquet, zstd": spark.read.parquet(f"{path}/zstd.parquet"),
            "JSON lines": spark.read.schema(_json_schema(spark, path)).json(f"{path}/lines"),
        }
        if schema is TEN_COLUMNS:
            frames["headrace, 2 of 10 columns"] = stream.option("columns", "id,price").load()
        times = best(3, {name: scan_of(frame) for name, frame in frames.items()})
    rate = {name: rows / spent / 1e6 for name, spent in times.items()}
    table = Table(f"Spark scans {rows:,} rows of {what}", _NOTE)
    aims = {"Parquet, uncompressed": aim, "JSON lines": Aim(ratio=5)}
    for beside in ("Parquet, uncompressed", "Parquet, zstd", "JSON lines"):
        figure = Figure("full scan", rate["headrace"], "M rows/s", beside, rate[beside], aims.get(beside))
        table.figures.append(figure)
    if schema is TEN_COLUMNS:
        some = rate["headrace, 2 of 10 columns"]
        figure = Figure("2 of 10 columns", some, "M rows/s", "full scan", rate["headrace"], Aim(ratio=2))
        table.figures.append(figure)
    return table


def scan_of(frame: DataFrame) -> Callable[[], float]:
    """Reads all rows of it; answers seconds."""

    def scan() -> float:
        with timed() as spent:
            frame.write.format("noop").mode("overwrite").save()
        return spent[0]

    return scan


def _write_all(spark: SparkSession, path: Path, schema: pa.Schema, rows: int) -> None:
    with hr.open(path) as store:
        order_by = "at" if "at" in schema.names else None
        with (
            store.stream("rows", schema, order_by).publisher() as publisher,
            pq.ParquetWriter(path / "plain.parquet", schema, compression="none") as plain,
            pq.ParquetWriter(path / "zstd.parquet", schema, compression="zstd") as zstd,
        ):
            for batch in batches(schema, rows):
                publisher.publish_batch(batch)
                plain.write_batch(batch)
                zstd.write_batch(batch)
    spark.read.parquet(f"{path}/plain.parquet").write.json(f"{path}/lines")


def _json_schema(spark: SparkSession, path: Path):  # type: ignore[no-untyped-def]
    return spark.read.parquet(f"{path}/plain.parquet").schema
