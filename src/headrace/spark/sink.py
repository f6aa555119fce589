"""The sinks: DataFrames into a stream, at once or micro-batch by micro-batch, exactly once.

The same sinks put jobs into a journal: where rows go is a `Target`, and `journal_sink` has another one.

Tasks stage their rows (`staging`), checked against the stream's type and sorted by its order key; the
driver merges what they staged and lands it as one atomic group (`landing`). A stream that is not there is
made, of the DataFrame's columns, ordered by the option `orderBy`.

A write at once is atomic too. With the option `writeId` it can be repeated: an id that has been written is
not written again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
from headrace.log.meta import Meta
from headrace.spark.landing import Landing
from headrace.spark.options import Options
from headrace.spark.origin import made_store
from headrace.spark.types import arrow_schema, stored_schema
from headrace.stream.agreement import stored_declaration
from headrace.stream.declaration import Declaration
from headrace.stream.staging import Run, StagingArea, read_runs, remove_runs, write_runs
from headrace.stream.tables import as_table

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Where Spark tells its tasks which batch of which query they work on."""


class Target(Protocol):
    """Where rows go: a stream, in a directory or on a node (`node_sink`), or a journal (`journal_sink`)."""

    def stage(self, place: str, batches: Iterator[pa.RecordBatch]) -> tuple[Run, ...]:
        """What a task was given, kept at the place of its write."""

    def land(self, query: str, batch: int, runs: list[Run], *, head: int | None = None) -> object:
        """All of a batch of a query, once however often this is asked for; then HEAD moves, if it is to."""

    def land_whole(self, place: str, runs: list[Run]) -> object:
        """All of a write, once if it has an id."""

    def discard(self, query: str, batch: int, runs: Iterable[Run]) -> None:
        """Remove these runs of a batch that is given up: others may be at work on the same batch."""

    def clear(self, place: str) -> None:
        """Remove all that was staged for a write that is given up."""


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """A stream that is there and takes what Spark will give."""

    landing: Landing
    declaration: Declaration
    write_id: str | None = None

    @property
    def area(self) -> StagingArea:
        return StagingArea.of(self.landing.path, self.landing.stream)

    def stage(self, place: str, batches: Iterator[pa.RecordBatch]) -> tuple[Run, ...]:
        tables = checked_tables(batches, self.declaration)
        folder = self.area.folder(place)
        return tuple(write_runs(folder, tables, self.declaration.schema, key_of(self.declaration)))

    def land(self, query: str, batch: int, runs: list[Run], *, head: int | None = None) -> None:
        self.landing.land(query, batch, read_runs(runs, key_of(self.declaration)), head=head)
        self.area.landed(query, batch)

    def land_whole(self, place: str, runs: list[Run]) -> None:
        self.landing.land_whole(read_runs(runs, key_of(self.declaration)), self.write_id)
        self.clear(place)
        self.area.remove_abandoned()

    def discard(self, query: str, batch: int, runs: Iterable[Run]) -> None:
        remove_runs(runs)

    def clear(self, place: str) -> None:
        self.area.clear(place)


def checked_tables(batches: Iterator[pa.RecordBatch], declaration: Declaration) -> Iterator[pa.Table]:
    """The rows as the stream stores them, or SchemaMismatch with the first that does not fit."""
    return (as_table(batch, declaration.schema, declaration) for batch in batches)


def key_of(declaration: Declaration) -> KeyColumn | None:
    order_by = declaration.order_by
    return None if order_by is None else KeyColumn(declaration.schema, order_by)


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    query: str
    batch: int
    task: int
    runs: tuple[Run, ...] = field(default=())


def sink_target(options: Options, schema: StructType) -> SinkTarget:
    """The stream that the options name, made if it is not there, and checked against Spark's columns."""
    path = options.place.path
    with made_store(path) as store:
        if options.stream_name not in store.streams():
            made = new_stream_schema(options, schema)
            store.stream(options.stream_name, made, options.order_by)
        meta = store.meta(options.stream_name)
    landing = Landing(path, options.stream_name, options.writer, options.take_over)
    return SinkTarget(landing, fitting_declaration(options, schema, meta), options.write_id)


def new_stream_schema(options: Options, schema: StructType) -> pa.Schema:
    """What a stream is made of that is not there yet."""
    if options.order_by is not None and options.order_by not in schema.names:
        raise SchemaMismatch(
            f"orderBy names {options.order_by!r}, which is not a column: {', '.join(schema.names)}"
        )
    return _required_key(schema, options.order_by)


def fitting_declaration(options: Options, schema: StructType, meta: Meta) -> Declaration:
    """What the stream that is there takes; SchemaMismatch if Spark's columns do not fit."""
    if options.order_by is not None and options.order_by != meta.order_by:
        raise SchemaMismatch(
            f"stream {options.stream_name!r} is ordered by {meta.order_by or 'index'}, not {options.order_by}"
        )
    declaration = stored_declaration(meta)
    as_table(arrow_schema(schema).empty_table(), declaration.schema, declaration)
    return declaration


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
        return staged_by_task(lambda place: self._target.stage(place, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        query, runs = collected(messages, batchId)
        self._target.land(query, batchId, runs)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Spark may say this after a commit that is on the disk: nothing is ever taken back."""
        for message in messages:
            if isinstance(message, Staged):
                self._target.discard(message.query, batchId, message.runs)


def place_of(query: str, batch: int) -> str:
    """Where the runs of a batch are staged."""
    return f"{query}/{batch}"


def staged_by_task(stage: Callable[[str], tuple[Run, ...]]) -> Staged:
    """Run `stage` with the place of the batch that this task works on."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY_ID) if context else None
    batch = context.getLocalProperty(BATCH_ID) if context else None
    if context is None or query is None or batch is None:
        raise Broken("Spark does not say which batch of which query this is: use PySpark 4.3")
    return Staged(query, int(batch), context.partitionId(), stage(place_of(query, int(batch))))


def collected(messages: Sequence[WriterCommitMessage | None], batch: int) -> tuple[str, list[Run]]:
    """The query, and its runs in the order of the tasks."""
    staged = [message for message in messages if isinstance(message, Staged)]
    if len(staged) != len(messages) or not staged or any(each.batch != batch for each in staged):
        raise Broken(f"batch {batch} is not complete: Spark's tasks did not all say what they staged")
    staged.sort(key=lambda each: each.task)
    return staged[0].query, [run for each in staged for run in each.runs]


class BatchSink(DataSourceArrowWriter):
    """The sink of `df.write`."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._place = f"write-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        return Staged("", 0, task, self._target.stage(self._place, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._target.land_whole(self._place, collected(messages, 0)[1])

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._target.clear(self._place)
