"""The history of a node's journal, as an origin: workers fetch its parts beside one another, over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.client.history_parts import HistoryParts
from headrace.kernel.errors import Damaged, NotFound, Trimmed
from headrace.log.mark import Settled
from headrace.log.plan import Span
from headrace.log.positions import PositionFile
from headrace.log.segment_reader import Batch
from headrace.spark.journal_history import (
    HISTORY,
    no_journal,
    no_keys,
    no_positions,
    shown_batch,
    stored_columns,
)
from headrace.spark.node_address import NodeAddress
from headrace.spark.origin import About


@dataclass(frozen=True, slots=True)
class NodeHistory:
    node: NodeAddress
    name: str

    def about(self) -> About:
        self.node.check()
        try:
            return About(self.node.run(lambda store: self._parts.reach())[0], HISTORY, None)
        except NotFound:
            there = self.node.run(lambda store: store.journals())
            raise no_journal(self.name, self.node.url, there) from None

    def first_index(self) -> int:
        return self.node.run(lambda store: self._parts.reach())[1]

    def settled(self) -> Settled:
        return Settled(self.node.run(lambda store: self._parts.reach())[2], 0)

    def index_of(self, key: str | int) -> int:
        raise no_keys()

    def key_at(self, index: int) -> int:
        return index

    def epoch_at(self, index: int) -> int:
        try:
            found = self.node.run(lambda store: self._parts.read(index, index + 1, ["kind"]))
        except (Damaged, Trimmed):
            return 0
        return found[0].epoch if found else 0

    def plan(self, start: int, stop: int, rows: int | None) -> list[Span]:
        if start >= stop:
            return []
        cores = os.cpu_count() or 2
        return self.node.run(lambda store: self._parts.plan(start, stop, rows, cores))

    def read(self, span: Span, columns: Sequence[str] | None) -> Iterator[Batch]:
        names = HISTORY.names if columns is None else list(columns)
        stored, index = stored_columns(names), span.start
        while index < span.stop:
            found = self.node.run(lambda store: self._parts.read(index, span.stop, stored))  # noqa: B023
            if not found:
                return
            for batch in found:
                yield shown_batch(batch, names)
            index = found[-1].next_index

    def remember(self, position: str) -> PositionFile:
        raise no_positions()

    @property
    def _parts(self) -> HistoryParts:
        return self.node.history(self.name)
