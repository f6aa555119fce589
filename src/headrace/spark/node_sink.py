"""Streams and journals on a node as targets of the sinks: driver, workers and node share no directory.

Tasks write their runs to local files and send them to the node, which checks and keeps them aside. The
driver has the node land those that it was told of, as one atomic group or one operation of the journal: by
the same rules as over a path, in one place for streams (`headrace.stream.landing`).
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.client.aio import AsyncStore
from headrace.client.staged_parts import Noun, StagedParts
from headrace.journal.job_columns import JOB_COLUMNS
from headrace.kernel.errors import HeadraceError
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.spark.journal_sink import given_columns, staged_jobs
from headrace.spark.landing import when_free
from headrace.spark.node_address import NodeAddress
from headrace.spark.options import Options
from headrace.spark.sink import checked_tables, fitting_declaration, key_of, new_stream_schema
from headrace.stream.declaration import Declaration
from headrace.stream.errors import PublisherTaken
from headrace.stream.staging import Run, write_runs

_RUN_BYTES = 48 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeStaging:
    """Where runs for one stream, or journal, of a node are staged."""

    node: NodeAddress
    noun: Noun
    name: str

    def stage(
        self, place: str, tables: Iterable[pa.Table], schema: pa.Schema, key: KeyColumn | None
    ) -> tuple[Run, ...]:
        """Runs as the node has them: their paths are the names by which they land."""
        query, _, batch = place.partition("/")
        with tempfile.TemporaryDirectory(prefix="headrace-runs-") as folder:
            runs = write_runs(Path(folder), tables, schema, key, bytes_most=_RUN_BYTES)
            return tuple(self._sent(query, int(batch or 0), run) for run in runs)

    def land(self, runs: list[Run], **wanted: Any) -> dict[str, Any]:
        """Another publisher may hold the stream for a moment."""
        names = [run.path for run in runs]
        return when_free(lambda: self._ask(lambda parts: parts.land(runs=names, **wanted)), PublisherTaken)

    def discard(self, query: str, batch: int, runs: Iterable[Run]) -> None:
        async def discard(parts: StagedParts) -> None:
            for run in runs:
                await parts.discard(query, batch, run.path)

        with contextlib.suppress(HeadraceError):  # what is left there is removed after a week
            self._ask(discard)

    def clear(self, place: str) -> None:
        with contextlib.suppress(HeadraceError):
            self._ask(lambda parts: parts.clear(place))

    def _sent(self, query: str, batch: int, run: Run) -> Run:
        path = Path(run.path)
        with pa.memory_map(run.path) as mapped:
            data = memoryview(mapped.read_buffer())
            name = self._ask(lambda parts: parts.stage(query, batch, path.stem, data, run.checksum))
        return replace(run, path=name)

    def _ask(self, work: Callable[[StagedParts], Coroutine[Any, Any, T]]) -> T:
        return self.node.run(lambda store: work(self.node.staged(self.noun, self.name)))


@dataclass(frozen=True, slots=True)
class NodeTarget:
    """A stream that is there and takes what Spark will give."""

    staging: NodeStaging
    writer: str
    take_over: bool
    declaration: Declaration
    write_id: str | None = None

    def stage(self, place: str, batches: Iterator[pa.RecordBatch]) -> tuple[Run, ...]:
        tables = checked_tables(batches, self.declaration)
        return self.staging.stage(place, tables, self.declaration.schema, key_of(self.declaration))

    def land(self, query: str, batch: int, runs: list[Run], *, head: int | None = None) -> object:
        named = {"writer": self.writer, "take_over": self.take_over}
        return self.staging.land(runs, query=query, batch=batch, head=head, **named)

    def land_whole(self, place: str, runs: list[Run]) -> object:
        return self.staging.land(runs, query=place, whole=True, write_id=self.write_id)

    def discard(self, query: str, batch: int, runs: Iterable[Run]) -> None:
        self.staging.discard(query, batch, runs)

    def clear(self, place: str) -> None:
        self.staging.clear(place)


@dataclass(frozen=True, slots=True)
class NodeJobsTarget:
    """A journal that takes what Spark will give."""

    staging: NodeStaging
    writer: str
    write_id: str | None
    schema: pa.Schema
    """The columns that Spark gives."""

    def stage(self, place: str, batches: Iterator[pa.RecordBatch]) -> tuple[Run, ...]:
        return self.staging.stage(place, staged_jobs(batches, self.schema), JOB_COLUMNS, None)

    def land(self, query: str, batch: int, runs: list[Run], *, head: int | None = None) -> object:
        return self.staging.land(runs, query=query, batch=batch, writer=self.writer)

    def land_whole(self, place: str, runs: list[Run]) -> object:
        return self.staging.land(runs, query=place, whole=True, write_id=self.write_id)

    def discard(self, query: str, batch: int, runs: Iterable[Run]) -> None:
        self.staging.discard(query, batch, runs)

    def clear(self, place: str) -> None:
        self.staging.clear(place)


def node_target(node: NodeAddress, options: Options, schema: StructType) -> NodeTarget:
    """The stream that the options name, made if it is not there, and checked against Spark's columns."""
    name = options.stream_name

    async def meta(store: AsyncStore) -> Meta:
        if name not in await store.streams():
            await store.stream(name, new_stream_schema(options, schema), options.order_by)
        return await store.meta(name)

    declaration = fitting_declaration(options, schema, node.run(meta))
    return stream_on_node(node, options, declaration)


def stream_on_node(node: NodeAddress, options: Options, declaration: Declaration) -> NodeTarget:
    """A stream of which it is known what it takes."""
    staging = NodeStaging(node, "streams", options.stream_name)
    return NodeTarget(staging, options.writer, options.take_over, declaration, options.write_id)


def node_jobs_target(node: NodeAddress, options: Options, schema: StructType) -> NodeJobsTarget:
    """The journal that the options name, made if it is not there, and its columns checked."""
    columns, name = given_columns(schema), options.journal_name
    node.run(lambda store: store.ensure_journal(name))
    return NodeJobsTarget(NodeStaging(node, "journals", name), options.writer, options.write_id, columns)
