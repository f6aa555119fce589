"""A stream on a node as the target of the sinks: no directory is shared between driver, workers and node.

Tasks write their runs to local files and send them to the node, which checks and keeps them aside. The
driver has the node land those that it was told of, as one atomic group: by the same rules, and the same
code, as over a path (`headrace.stream.landing`).
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
from headrace.client.parts import StreamParts
from headrace.kernel.errors import HeadraceError
from headrace.log.meta import Meta
from headrace.log.state import Commit
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
class NodeTarget:
    """A stream that is there and takes what Spark will give."""

    node: NodeAddress
    stream: str
    writer: str
    take_over: bool
    declaration: Declaration
    write_id: str | None = None

    def stage(self, place: str, batches: Iterator[pa.RecordBatch]) -> tuple[Run, ...]:
        query, _, batch = place.partition("/")
        tables, schema = checked_tables(batches, self.declaration), self.declaration.schema
        with tempfile.TemporaryDirectory(prefix="headrace-runs-") as folder:
            key = key_of(self.declaration)
            runs = write_runs(Path(folder), tables, schema, key, bytes_most=_RUN_BYTES)
            return tuple(self._sent(query, int(batch or 0), run) for run in runs)

    def land(self, query: str, batch: int, runs: list[Run]) -> Commit:
        named = {"writer": self.writer, "take_over": self.take_over}
        return self._land(query=query, batch=batch, runs=[run.path for run in runs], **named)

    def land_whole(self, place: str, runs: list[Run]) -> Commit:
        return self._land(query=place, runs=[run.path for run in runs], whole=True, write_id=self.write_id)

    def discard(self, query: str, batch: int, runs: Iterable[Run]) -> None:
        async def discard(parts: StreamParts) -> None:
            for run in runs:
                await parts.discard(query, batch, run.path)

        with contextlib.suppress(HeadraceError):  # what is left there is removed after a week
            self._ask(discard)

    def clear(self, place: str) -> None:
        with contextlib.suppress(HeadraceError):
            self._ask(lambda parts: parts.clear(place))

    def _sent(self, query: str, batch: int, run: Run) -> Run:
        """The run as the node has it: its path is the name by which it lands."""
        path = Path(run.path)
        with pa.memory_map(run.path) as mapped:
            data = memoryview(mapped.read_buffer())
            name = self._ask(lambda parts: parts.stage(query, batch, path.stem, data, run.checksum))
        return replace(run, path=name)

    def _land(self, **wanted: Any) -> Commit:
        """Another publisher may hold the stream for a moment."""
        return when_free(lambda: self._ask(lambda parts: parts.land(**wanted)), PublisherTaken)

    def _ask(self, work: Callable[[StreamParts], Coroutine[Any, Any, T]]) -> T:
        return self.node.run(lambda store: work(self.node.parts(self.stream)))


def node_target(node: NodeAddress, options: Options, schema: StructType) -> NodeTarget:
    """The stream that the options name, made if it is not there, and checked against Spark's columns."""
    name = options.stream_name

    async def meta(store: AsyncStore) -> Meta:
        if name not in await store.streams():
            await store.stream(name, new_stream_schema(options, schema), options.order_by)
        return await store.meta(name)

    declaration = fitting_declaration(options, schema, node.run(meta))
    return NodeTarget(node, name, options.writer, options.take_over, declaration, options.write_id)
