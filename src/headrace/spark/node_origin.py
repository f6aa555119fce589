"""A stream on a node, as an origin: Spark's workers fetch its parts beside one another, over HTTP."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from headrace.client.loop_thread import LoopThread
from headrace.client.parts import StreamParts
from headrace.kernel.errors import HeadraceError
from headrace.log.mark import Settled
from headrace.log.plan import Span
from headrace.log.segment_reader import Batch
from headrace.spark.node_address import NodeAddress
from headrace.spark.origin import About, stored_epoch, stored_key


@dataclass(frozen=True, slots=True)
class NodeOrigin:
    node: NodeAddress
    name: str

    def about(self) -> About:
        self.node.check()
        meta = self.node.meta(self.name)
        return About(meta.id, meta.schema, meta.order_by)

    def first_index(self) -> int:
        return self.node.run(lambda store: self._parts.reach())[0]

    def settled(self) -> Settled:
        return self.node.run(lambda store: self._parts.reach())[1]

    def index_of(self, key: str | int) -> int:
        return self.node.run(lambda store: self._parts.seek(key))

    def key_at(self, index: int) -> int:
        with self.node.stream(self.name) as stream:
            return stored_key(stream, index)

    def epoch_at(self, index: int) -> int:
        with self.node.stream(self.name) as stream:
            return stored_epoch(stream, index)

    def plan(self, start: int, stop: int, rows: int | None) -> list[Span]:
        if start >= stop:
            return []
        cores = os.cpu_count() or 2
        return self.node.run(lambda store: self._parts.plan(start, stop, rows, cores))

    def read(self, span: Span, columns: Sequence[str] | None) -> Iterator[Batch]:
        """A node that closes the stream (it grows) may end an answer early: what is missing is asked for."""
        index, found = span.start, True
        while found and index < span.stop:
            found = False
            with self.node.stream(self.name) as stream:
                wanted = None if columns is not None and list(columns) == stream.schema.names else columns
                for batch in stream.listen_batches(index, until=span.stop, columns=wanted):
                    found, index = True, batch.next_index
                    yield batch

    def remember(self, position: str) -> NodePosition:
        return NodePosition(self.node, self.name, position)

    @property
    def _parts(self) -> StreamParts:
        return self.node.parts(self.name)


class NodePosition:
    """A named position on a node, held until it is closed: a task says so again and again."""

    def __init__(self, node: NodeAddress, stream: str, name: str) -> None:
        """WriterTaken, if another reader has it."""
        self._node = node
        self._parts = node.parts(stream)
        self._name = name
        self._reader = uuid.uuid4().hex
        self.index = node.run(lambda store: self._parts.save_position(name, self._reader, None))
        self._renewing: Future[None] = LoopThread.shared().start(
            self._parts.keep_position(name, self._reader)
        )

    def save(self, index: int) -> None:
        self._node.run(lambda store: self._parts.save_position(self._name, self._reader, index))
        self.index = index

    def close(self) -> None:
        self._renewing.cancel()
        with contextlib.suppress(HeadraceError):  # a node that is away will let the lease end by itself
            self._node.run(lambda store: self._parts.release_position(self._name, self._reader))
