"""The sink of TailProduce jobs: packed outputs of all buckets, put in one order and landed with HEAD.

The same protocol as any sink of ours (`sink`). What differs: one row holds many outputs; one task has those
of all buckets, and puts them in the order of their causes; and HEAD of the output moves to where the batch
ended, so that a job reading the output knows that time has passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from headrace.kernel.errors import Broken
from headrace.spark.engine import sorted_by_cause
from headrace.spark.merge import unpacked
from headrace.spark.sink import Staged, StreamSink, Target, collected, staged_by_task


@dataclass(frozen=True, slots=True)
class StagedCut(Staged):
    cut: int | None = None


class PackedSink(DataSourceStreamArrowWriter):
    def __init__(self, target: Target, *, ordered: bool) -> None:
        """`ordered`: the output has an order key, so HEAD can move."""
        self._target = target
        self._ordered = ordered

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        cuts: set[int] = set()
        staged = staged_by_task(lambda place: self._target.stage(place, _in_one_order(iterator, cuts)))
        if len(cuts) > 1:
            raise Broken(f"batch {staged.batch} has buckets of different intervals: a bug of headrace's")
        return StagedCut(staged.query, staged.batch, staged.task, staged.runs, max(cuts, default=None))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        query, runs = collected(messages, batchId)
        cuts = [each.cut for each in messages if isinstance(each, StagedCut) and each.cut is not None]
        if len(cuts) > 1:
            raise Broken(f"batch {batchId} was staged by {len(cuts)} tasks: a bug of headrace's")
        self._target.land(query, batchId, runs, head=cuts[0] if cuts and self._ordered else None)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        StreamSink(self._target).abort(messages, batchId)


def _in_one_order(rows: Iterator[pa.RecordBatch], cuts: set[int]) -> Iterator[pa.RecordBatch]:
    """The outputs of all buckets; `cuts` is told where the batch ends."""
    outputs = []
    for batch in rows:
        for cut, packed in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True):
            cuts.add(int(cut))
            if packed is not None:
                outputs.append(unpacked(packed))
    if outputs:
        yield sorted_by_cause(pa.concat_batches(outputs))
