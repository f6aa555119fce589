"""How the tests of the source and the sink ask Spark for things, and what they compare with."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import headrace as hr
from headrace.spark.options import parse_options
from headrace.spark.origin import FileOrigin
from headrace.spark.projection import projection
from headrace.spark.reader import BatchReader, MicroBatchReader

CAMPAIGN = "HEADRACE_CAMPAIGN" in os.environ
"""Whether the long versions of the tests run, too."""

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string())])


def numbers(first: int, stop: int) -> pa.Table:
    return pa.table({"n": range(first, stop), "text": [f"row {n}" for n in range(first, stop)]}, NUMBERS)


def publish(store: hr.Store, name: str, *ranges: tuple[int, int], **options: Any) -> None:
    """Numbers into a stream ordered by them, which is made if it is not there; one batch for each range."""
    stream = store.stream(name, NUMBERS, order_by="n", **options)
    with stream, stream.publisher() as publisher:
        for first, stop in ranges:
            publisher.publish_batch(numbers(first, stop))


def entries(store: hr.Store, name: str) -> list[dict[str, Any]]:
    """All that is in a stream, read without Spark."""
    with store.stream(name) as stream:
        return [row for batch in stream.listen_batches() for row in batch.records.to_pylist()]


def column(store: hr.Store, name: str, field: str = "n") -> list[Any]:
    return [entry[field] for entry in entries(store, name)]


def read(spark: SparkSession, store: hr.Store, stream: str, **options: Any) -> DataFrame:
    return spark.read.format("headrace").options(path=str(store.path), stream=stream, **options).load()


def read_stream(spark: SparkSession, store: hr.Store, stream: str, **options: Any) -> DataFrame:
    return spark.readStream.format("headrace").options(path=str(store.path), stream=stream, **options).load()


def write(frame: DataFrame, store: hr.Store, stream: str, **options: Any) -> None:
    writer = frame.write.format("headrace").mode("append")
    writer.options(path=str(store.path), stream=stream, **options).save()


def write_stream(
    frame: DataFrame, store: hr.Store, stream: str, checkpoint: Path, **options: Any
) -> StreamingQuery:
    """All that is there now, in as many batches as it takes; the query, ended."""
    query = (
        frame.writeStream.format("headrace")
        .options(path=str(store.path), stream=stream, checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


# --- the same without Spark


def batch_reader(store: hr.Store, stream: str, **options: str) -> BatchReader:
    return BatchReader(*_reading(store, stream, options))


def micro_batch_reader(store: hr.Store, stream: str, **options: str) -> MicroBatchReader:
    return MicroBatchReader(*_reading(store, stream, options))


def _reading(store: hr.Store, stream: str, options: dict[str, str]) -> tuple[Any, Any, Any]:
    origin = FileOrigin(str(store.path), stream)
    parsed = parse_options({"path": str(store.path), "stream": stream, **options})
    return origin, parsed, projection(origin.about(), parsed)


def read_parts(reader: BatchReader | MicroBatchReader, parts: Iterable[Any], field: str = "n") -> list[Any]:
    """One column of what Spark's workers would read."""
    return [value for part in parts for batch in reader.read(part) for value in batch[field].to_pylist()]


def wait_less(monkeypatch: Any, module: Any, name: str) -> None:
    """Patience that ends at once."""
    monkeypatch.setattr(module, name, 0.0)
