"""The log of a node's journal, every change that it still has, for programs that read much.

Everything here is safe to repeat, and is sent again for a while if the node is away.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.client.node_line import NodeLine, path_of
from headrace.client.parts import plan_query, spans_of
from headrace.log.plan import Span
from headrace.log.segment_reader import Batch
from headrace.wire import http_words as words


class HistoryParts:
    def __init__(self, line: NodeLine, name: str) -> None:
        self._line = line
        self._path = path_of("journals", name, "history")

    async def reach(self) -> tuple[str, int, int]:
        """The log's id, its first index, and where it ends that no power cut can take back."""
        told = await self._line.surely(lambda: self._line.told("GET", f"{self._path}/reach"))
        return told["id"], told["first"], told["settled"]

    async def plan(self, start: int, stop: int, rows: int | None, cores: int) -> list[Span]:
        path = f"{self._path}/plan?{plan_query(start, stop, rows, cores)}"
        return spans_of(await self._line.surely(lambda: self._line.told("GET", path)))

    async def read(self, start: int, stop: int, columns: Sequence[str]) -> list[Batch]:
        """Some batches from `start` on, of these columns in the order in which they are stored."""
        path = f"{self._path}?from={start}&to={stop}&columns={','.join(columns)}"
        raw = await self._line.surely(lambda: self._line.ask("GET", path))
        batches, reader = list[Batch](), pa.ipc.open_stream(raw)
        while True:
            try:
                records, notes = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return batches
            index, epoch = int(notes[words.NOTE_INDEX]), int(notes[words.NOTE_EPOCH])
            batches.append(Batch(index, records, 0, 0, 0, epoch))
