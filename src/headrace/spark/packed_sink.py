"""The sink of TailProduce jobs: packed outputs of all buckets, put in one order and landed with HEAD.

The same protocol as any sink of ours (`staging`, `landing`): what differs is that one row holds many
outputs, that the driver sorts them by their cause, and that HEAD of the output moves to where the batch
ended, so that a job reading the output knows that time has passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.kernel.errors import Broken
from headrace.spark.engine import sorted_by_cause
from headrace.spark.landing import Landing
from headrace.spark.merge import unpacked
from headrace.spark.sink import Staged, collected, staged_by_task
from headrace.stream.staging import Run, StagingArea, read_runs, remove_runs, write_runs


class PackedTarget(msgspec.Struct, frozen=True):
    """Where outputs go; travels as JSON in an option."""

    path: str
    stream: str
    writer: str
    take_over: bool
    ordered: bool
    """Whether the output has an order key, so that HEAD can move."""


@dataclass(frozen=True, slots=True)
class StagedCut(Staged):
    cut: int | None = None


class PackedSink(DataSourceStreamArrowWriter):
    def __init__(self, target: PackedTarget) -> None:
        self._target = target
        self._area = StagingArea.of(target.path, target.stream)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        cuts: set[int] = set()
        staged = staged_by_task(lambda place: self._stage(self._area.folder(place), iterator, cuts))
        return StagedCut(staged.query, staged.batch, staged.task, staged.runs, max(cuts, default=None))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        query, runs = collected(messages, batchId)
        cuts = {each.cut for each in messages if isinstance(each, StagedCut) and each.cut is not None}
        if len(cuts) > 1:
            raise Broken(f"batch {batchId} has buckets of different intervals: this is a bug of headrace's")
        target = self._target
        landing = Landing(target.path, target.stream, target.writer, target.take_over)
        head = cuts.pop() if cuts and target.ordered else None
        landing.land(query, batchId, _in_one_order(runs), head=head)
        self._area.landed(query, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        for message in messages:
            remove_runs(message.runs if isinstance(message, Staged) else ())

    @staticmethod
    def _stage(folder: Path, batches: Iterator[pa.RecordBatch], cuts: set[int]) -> tuple[Run, ...]:
        tables = []
        for batch in batches:
            for cut, packed in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True):
                cuts.add(int(cut))
                if packed is not None:
                    tables.append(pa.Table.from_batches([unpacked(packed)]))
        return tuple(write_runs(folder, tables, tables[0].schema, None)) if tables else ()


def _in_one_order(runs: list[Run]) -> Iterator[pa.RecordBatch]:
    batches = list(read_runs(runs, None))
    if batches:
        yield sorted_by_cause(pa.concat_batches(batches))
