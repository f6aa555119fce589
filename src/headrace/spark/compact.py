"""Compacting: the latest entry for each value of a field, as a new stream.

    hr.spark.compact(spark, "data", "prices", "prices-now", by="sym")

Spark finds the largest index for each value, reading one column. The entries with these indexes then go from
log to log as they are, whatever their type: workers stage them, and the driver appends them in the order of
the old stream to a new one, which is made aside and appears under its name when it is whole.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace.kernel.errors import HeadraceError, SchemaMismatch
from headrace.kernel.names import checked_name
from headrace.log.disk import Disk
from headrace.log.keys import KeyColumn
from headrace.log.log import Log
from headrace.log.mark import Settled
from headrace.log.plan import Span
from headrace.log.settings import Retention
from headrace.spark.explain import plain_words
from headrace.spark.job import Progress, StorePath, store_path, watched
from headrace.spark.origin import FileOrigin, existing_store
from headrace.spark.projection import INDEX
from headrace.stream.errors import StreamExists
from headrace.stream.staging import Run, StagingArea, read_runs, write_runs

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
    store: StorePath,
    stream: str,
    into: str,
    *,
    by: str,
    progress: Progress | None = None,
) -> Compacted:
    """Make the stream `into` of the latest entry for each value of the field `by` of `stream`."""
    origin = FileOrigin(store_path(spark, store), stream)
    target = check_compact(origin, into, by)
    settled, first = origin.settled(), origin.first_index()
    with _staging(origin) as folder:
        with plain_words(), watched(spark, progress):
            latest = _latest(spark, origin, by, Span(first, settled.next_index))
            runs = _staged(latest, origin, folder)
        _make(origin, target, folder, runs, settled)
    return Compacted(stream, into, by, settled.next_index - first, sum(run.rows for run in runs))


def check_compact(origin: FileOrigin, into: str, by: str) -> Path:
    """Where the new stream will be. Raises if there is one, or if the old one has no field `by`."""
    names = origin.about().schema.names
    if by not in names:
        raise SchemaMismatch(f"stream {origin.name!r} has no field {by!r}: it has {', '.join(names)}")
    with existing_store(origin.path) as store:
        path = store.stream(origin.name).log.path.with_name(checked_name(into, "stream name"))
        if into in store.streams():
            raise StreamExists(f"there is a stream {into!r} in {store.path} already: choose another name")
    return path


@contextmanager
def _staging(origin: FileOrigin) -> Iterator[Path]:
    area, place = StagingArea.of(origin.path, origin.name), f"compact-{uuid.uuid4().hex}"
    Disk().make_directory(area.folder(place))
    try:
        yield area.folder(place)
    finally:
        area.clear(place)
        area.remove_abandoned()


def _latest(spark: SparkSession, origin: FileOrigin, by: str, span: Span) -> DataFrame:
    """The indexes of the entries that stay, in order."""
    reader = spark.read.format("headrace").option("path", origin.path).option("stream", origin.name)
    reader = reader.option("columns", f"{by},{INDEX}").option("startIndex", str(span.start))
    entries = reader.option("endIndex", str(span.stop)).load()
    latest = entries.groupBy(sf.col(f"`{by}`").alias(_KEY)).agg(sf.max(INDEX).alias(INDEX))
    return latest.select(INDEX).sort(INDEX)


def _staged(latest: DataFrame, origin: FileOrigin, folder: Path) -> list[Run]:
    """Have the workers stage the entries with these indexes; the runs in the order of the stream."""
    schema = origin.about().schema

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        indexes = pa.concat_arrays([pa.array([], pa.int64()), *(batch.column(0) for batch in batches)])
        context = TaskContext.get()
        if len(indexes) and context is not None:
            runs = write_runs(folder, _taken(origin, indexes, schema), schema, None)
            made = {"task": pa.array([context.partitionId()]), "runs": pa.array([pickle.dumps(runs)])}
            yield pa.record_batch(made)

    rows = latest.mapInArrow(stage, "task bigint, runs binary").collect()
    return [run for row in sorted(rows, key=lambda row: int(row.task)) for run in pickle.loads(row.runs)]


def _taken(origin: FileOrigin, indexes: pa.Array, schema: pa.Schema) -> Iterator[pa.Table]:
    """The entries with these indexes, which are in order."""
    wanted = indexes.to_numpy()
    for batch in origin.read(Span(int(wanted[0]), int(wanted[-1]) + 1), schema.names):
        first, stop = wanted.searchsorted([batch.base_index, batch.next_index])
        if first < stop:
            rows = pa.array(wanted[first:stop] - batch.base_index)
            yield pa.Table.from_batches([batch.records.take(rows)])


def _make(origin: FileOrigin, target: Path, folder: Path, runs: list[Run], settled: Settled) -> None:
    """Make the new stream aside, of the same type as the old one, and give it its name."""
    disk, aside = Disk(), folder / "log"
    with existing_store(origin.path) as store:
        meta = store.stream(origin.name).log.meta
    settings = replace(meta.settings, retention=Retention(), containers=None)  # all of it is to be kept
    with Log.open(
        aside, meta.schema, settings, order_by=meta.order_by, strict=meta.strict, extra=meta.extra
    ) as log:
        for records in read_runs(runs, None):
            log.append(records)
        if meta.order_by is not None and settled.head_key > log.head_key:
            log.head(KeyColumn(meta.schema, meta.order_by).decode(settled.head_key))
        log.sync(force=True)
    try:
        disk.rename(aside, target)  # refused by the file system if somebody made it meanwhile
    except HeadraceError as error:
        if target.exists():
            raise StreamExists(f"a stream {target.name!r} was made meanwhile: choose another name") from error
        raise
    disk.sync_dir(target.parent)
