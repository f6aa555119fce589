"""Compacting: the latest entry for each value of a field, as a new stream.

    hr.spark.compact(spark, "data", "prices", "prices-now", by="sym")

Spark finds the largest index for each value, reading one column. The entries with these indexes then go from
log to log as they are, whatever their type, into a new stream that is made aside (`stream.compacting`). In a
directory workers stage them, and the driver appends them in the order of the old stream. A node is told the
indexes, and does it by itself.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace.kernel.errors import SchemaMismatch, TooLarge
from headrace.kernel.names import checked_name
from headrace.log.mark import Settled
from headrace.log.plan import Span
from headrace.spark.explain import plain_words
from headrace.spark.job import NodeOptions, Progress, StorePlace, place_of, watched
from headrace.spark.origin import FileOrigin, Origin, existing_store
from headrace.spark.place import Place
from headrace.spark.projection import INDEX
from headrace.stream.compacting import chosen_entries, compacting_folder, make_stream
from headrace.stream.errors import StreamExists
from headrace.stream.staging import Run, StagingArea, read_runs, write_runs

if TYPE_CHECKING:
    from headrace.spark.node_address import NodeAddress

_KEY = "_compact_by"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What came of it: `read` entries were looked at, `entries` are in the new stream."""

    stream: str
    into: str
    by: str
    read: int
    entries: int


def compact(
    spark: SparkSession,
    store: StorePlace,
    stream: str,
    into: str,
    *,
    by: str,
    progress: Progress | None = None,
    **node: Unpack[NodeOptions],
) -> Compacted:
    """Make the stream `into` of the latest entry for each value of the field `by` of `stream`."""
    place = place_of(spark, store, node)
    check_compact(place, stream, into, by)
    origin = place.stream(stream)
    settled, first = origin.settled(), origin.first_index()
    with plain_words(), watched(spark, progress):
        latest = _latest(spark, place, origin, by, Span(first, settled.next_index))
        if (address := place.node) is not None:
            entries = _on_node(latest, address, stream, into, settled)
        else:
            entries = _in_directory(latest, FileOrigin(place.path, stream), into, settled)
    return Compacted(stream, into, by, settled.next_index - first, entries)


def check_compact(place: Place, stream: str, into: str, by: str) -> None:
    """Raise if there is a stream `into`, or if the old one has no field `by`."""
    names = place.stream(stream).about().schema.names
    if by not in names:
        raise SchemaMismatch(f"stream {stream!r} has no field {by!r}: it has {', '.join(names)}")
    checked_name(into, "stream name")
    with place.opened() as store:
        if into in store.streams():
            raise StreamExists(f"there is a stream {into!r} in {place} already: choose another name")


def _latest(spark: SparkSession, place: Place, origin: Origin, by: str, span: Span) -> DataFrame:
    """The indexes of the entries that stay, in order."""
    reader = spark.read.format("headrace").options(**place.options, stream=origin.name)
    reader = reader.option("columns", f"{by},{INDEX}").option("startIndex", str(span.start))
    entries = reader.option("endIndex", str(span.stop)).load()
    latest = entries.groupBy(sf.col(f"`{by}`").alias(_KEY)).agg(sf.max(INDEX).alias(INDEX))
    return latest.select(INDEX).sort(INDEX)


# --- on a node


def _on_node(latest: DataFrame, node: NodeAddress, stream: str, into: str, settled: Settled) -> int:
    column = latest.toArrow().column(0)
    indexes = pa.concat_arrays([pa.array([], pa.int64()), *column.chunks])
    try:
        return node.run(lambda store: node.parts(stream).compact(into, indexes, settled.head_key))
    except TooLarge as error:
        raise TooLarge(
            f"{len(indexes)} values are more than the node takes at once ({error}): compact it where the "
            "store's directory is"
        ) from error


# --- in a directory


def _in_directory(latest: DataFrame, origin: FileOrigin, into: str, settled: Settled) -> int:
    with existing_store(origin.path) as store:
        log = store.stream(origin.name).log
        meta, target = log.meta, log.path.with_name(into)
    with compacting_folder(StagingArea.of(origin.path, origin.name)) as folder:
        runs = _staged(latest, origin, folder)
        return make_stream(target, meta, folder, read_runs(runs, None), settled.head_key)


def _staged(latest: DataFrame, origin: FileOrigin, folder: Path) -> list[Run]:
    """Have the workers stage the entries with these indexes; the runs in the order of the stream."""
    schema = origin.about().schema

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        indexes = pa.concat_arrays([pa.array([], pa.int64()), *(batch.column(0) for batch in batches)])
        context = TaskContext.get()
        if len(indexes) and context is not None:
            span = Span(indexes[0].as_py(), indexes[-1].as_py() + 1)
            chosen = chosen_entries(origin.read(span, schema.names), indexes)
            tables = (pa.Table.from_batches([records]) for records in chosen)
            runs = write_runs(folder, tables, schema, None)
            made = {"task": pa.array([context.partitionId()]), "runs": pa.array([pickle.dumps(runs)])}
            yield pa.record_batch(made)

    rows = latest.mapInArrow(stage, "task bigint, runs binary").collect()
    return [run for row in sorted(rows, key=lambda row: int(row.task)) for run in pickle.loads(row.runs)]
