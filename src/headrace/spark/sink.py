"""The sinks: DataFrames into a stream, at once or micro-batch by micro-batch, exactly once.

The same sinks put jobs into a journal: where rows go is a `Target`, and `journal_sink` has another one.

Tasks stage their rows (`staging`), checked against the stream's type and sorted by its order key; the
driver merges what they staged and lands it as one atomic group (`landing`). A stream that is not there is
made, of the DataFrame's columns, ordered by the option `orderBy`.

A write at once is atomic too. With the option `writeId` it can be repeated: an id that has been written is
not written again.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.kernel.errors import Broken, SchemaMismatch
from headrace.log.keys import KeyColumn
from headrace.spark.landing import Landing
from headrace.spark.options import Options
from headrace.spark.origin import made_store
from headrace.spark.staging import Run, read_runs, remove_abandoned, remove_staged, staging_of, write_runs
from headrace.spark.types import arrow_schema, stored_schema
from headrace.store import stored_declaration
from headrace.stream.declaration import Declaration
from headrace.stream.tables import as_table

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Where Spark tells its tasks which batch of which query they work on."""


class Target(Protocol):
    """Where rows go: a stream, or a journal (`journal_sink`)."""

    @property
    def staging(self) -> Path: ...

    def stage(self, folder: Path, batches: Iterator[pa.RecordBatch]) -> tuple[Run, ...]: ...

    def land(self, query: str, batch: int, runs: list[Run]) -> object:
        """All of a batch of a query, once however often this is asked for."""

    def land_whole(self, runs: list[Run]) -> object:
        """All of a write, once if it has an id."""


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """A stream that is there and takes what Spark will give."""

    landing: Landing
    declaration: Declaration
    write_id: str | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.declaration.schema

    @property
    def key(self) -> KeyColumn | None:
        order_by = self.declaration.order_by
        return None if order_by is None else KeyColumn(self.schema, order_by)

    @property
    def staging(self) -> Path:
        return staging_of(self.landing.path, self.landing.stream)

    def stage(self, folder: Path, batches: Iterator[pa.RecordBatch]) -> tuple[Run, ...]:
        tables = (as_table(batch, self.schema, self.declaration) for batch in batches)
        return tuple(write_runs(folder, tables, self.schema, self.key))

    def land(self, query: str, batch: int, runs: list[Run]) -> None:
        self.landing.land(query, batch, read_runs(runs, self.key))

    def land_whole(self, runs: list[Run]) -> None:
        records = read_runs(runs, self.key)
        if self.write_id is None:
            self.landing.land_once(records)
        else:
            replace(self.landing, writer=f"write:{self.write_id}").land("once", 0, records)


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    batch: int
    task: int
    runs: tuple[Run, ...] = field(default=())


def sink_target(options: Options, schema: StructType) -> SinkTarget:
    """The stream that the options name, made if it is not there, and checked against Spark's columns."""
    given = arrow_schema(schema)
    with made_store(options.path) as store:
        if options.stream_name not in store.streams():
            if options.order_by is not None and options.order_by not in given.names:
                raise SchemaMismatch(
                    f"orderBy names {options.order_by!r}, which is not a column: {', '.join(given.names)}"
                )
            store.stream(options.stream_name, _required_key(schema, options.order_by), options.order_by)
        stream = store.stream(options.stream_name)
        if options.order_by is not None and options.order_by != stream.order_by:
            raise SchemaMismatch(
                f"stream {stream.name!r} is ordered by {stream.order_by or 'index'}, not {options.order_by}"
            )
        declaration = stored_declaration(stream.log.meta)
    as_table(given.empty_table(), declaration.schema, declaration)
    landing = Landing(options.path, options.stream_name, options.writer, options.take_over)
    return SinkTarget(landing, declaration, options.write_id)


def _required_key(schema: StructType, order_by: str | None) -> pa.Schema:
    """The schema of a new stream: Spark calls most columns nullable, but an order key never is null."""
    return pa.schema(
        [each.with_nullable(False) if each.name == order_by else each for each in stored_schema(schema)]
    )


class StreamSink(DataSourceStreamArrowWriter):
    """The sink of a streaming query. Spark makes it anew for every batch."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return staged_by_task(lambda folder: self._target.stage(folder, iterator), self._target.staging)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        query, runs = collected(messages, batchId)
        self._target.land(query, batchId, runs)
        remove_staged(self._target.staging / query, batchId)
        remove_abandoned(self._target.staging)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Spark may say this after a commit that is on the disk: nothing is ever taken back."""
        remove_runs(messages)


def staged_by_task(stage: Callable[[Path], tuple[Run, ...]], staging: Path) -> Staged:
    """Run `stage` with the folder of the batch that this task works on."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context else None
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if context is None or query is None or batch is None:
        raise Broken("Spark does not say which batch of which query this is: use PySpark 4.3")
    return Staged(query, int(batch), context.partitionId(), stage(staging / query / batch))


def collected(messages: Sequence[WriterCommitMessage | None], batch: int) -> tuple[str, list[Run]]:
    """The query, and its runs in the order of the tasks."""
    staged = [message for message in messages if isinstance(message, Staged)]
    if len(staged) != len(messages) or not staged or any(each.batch != batch for each in staged):
        raise Broken(f"batch {batch} is not complete: Spark's tasks did not all say what they staged")
    staged.sort(key=lambda each: each.task)
    return staged[0].query, [run for each in staged for run in each.runs]


def remove_runs(messages: Sequence[WriterCommitMessage | None]) -> None:
    for message in messages:
        if isinstance(message, Staged):
            for run in message.runs:
                Path(run.path).unlink(missing_ok=True)


class BatchSink(DataSourceArrowWriter):
    """The sink of `df.write`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._folder = target.staging / f"write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        return Staged("", 0, task, self._target.stage(self._folder, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._target.land_whole(collected(messages, 0)[1])
        shutil.rmtree(self._folder, ignore_errors=True)
        remove_abandoned(self._target.staging)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
