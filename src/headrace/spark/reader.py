"""Reading a stream into Spark: a stretch of it at once, or micro-batch by micro-batch.

An offset is `{"index": n, "log": id, "epoch": e}`: everything below `n` has been read, of the log with that
id, whose entry before `n` was written in that epoch. Spark compares offsets as text, so their keys keep this
order. Only entries that are settled are read: nothing that Spark has seen can be taken back by a power cut,
and so what it makes of them stays true.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.kernel.errors import BadSettings, Trimmed, Truncated, WriterTaken
from headrace.log.mark import Settled
from headrace.log.plan import Span
from headrace.spark.options import Options
from headrace.spark.origin import Origin, Position
from headrace.spark.projection import Projection

_POSITION_WAIT_S = 15.0


@dataclass(frozen=True, slots=True)
class SpanPartition(InputPartition):
    """One part of a plan."""

    span: Span


class BatchReader(DataSourceReader):
    """One read of a stretch of a stream."""

    def __init__(self, origin: Origin, options: Options, projection: Projection) -> None:
        self._origin = origin
        self._options = options
        self._projection = projection

    def partitions(self) -> Sequence[InputPartition]:
        origin, options = self._origin, self._options
        first, settled = origin.first_index(), origin.settled()
        start = _start(origin, options, first, settled.next_index)
        stop = _stop(origin, options, settled.next_index)
        spans = origin.plan(start, stop, options.partition_rows)
        return [SpanPartition(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._origin, self._projection, partition)


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that is read as it grows. One object lives for a query, in a process of its own."""

    def __init__(self, origin: Origin, options: Options, projection: Projection) -> None:
        self._origin = origin
        self._options = options
        self._projection = projection
        self._id = origin.about().id
        self._stop_at: int | None = None
        self._position: Position | None = None
        self._seen: tuple[int, Settled] | None = None

    def initialOffset(self) -> dict[str, Any]:
        first, settled = self._origin.first_index(), self._origin.settled()
        start = _start(self._origin, self._options, first, settled.next_index)
        if start > settled.next_index:
            raise BadSettings(
                f"stream {self._origin.name!r} ends at index {settled.next_index}: it cannot be read from "
                f"{start} on; use startIndex='latest' for what comes from now on"
            )
        self._remember(start)
        return self._offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = int(start["index"])
        if (begun, self._origin.settled()) != self._seen:  # asked many times a second: look when it has moved
            self._check(start)
            self._seen = begun, self._origin.settled()
        stop = self._reach() if self._stop_at is None else self._stop_at
        if isinstance(limit, ReadMaxRows):
            stop = min(stop, begun + limit.max_rows)
        return self._offset(stop) if stop > begun else start

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._offset(self._reach())

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop_at = self._reach()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._check(end)
        first = self._origin.first_index()
        begun, stop = int(start["index"]), int(end["index"])
        if begun < first:
            if self._options.fail_on_data_loss:
                raise Trimmed(
                    f"stream {self._origin.name!r} begins at index {first}: entries from {begun} on were "
                    "removed before this query read them; name a 'position' so that retention waits, or read "
                    "on without them with failOnDataLoss=false"
                )
            begun = min(first, stop)
        spans = self._origin.plan(begun, stop, self._options.partition_rows)
        return [SpanPartition(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._origin, self._projection, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._remember(int(end["index"]))

    def stop(self) -> None:
        if self._position is not None:
            self._position.close()
            self._position = None

    def _offset(self, index: int) -> dict[str, Any]:
        return {"index": index, "log": self._id, "epoch": self._epoch_before(index)}

    def _epoch_before(self, index: int) -> int:
        """The epoch of the last entry that was read; 0 if there is none any more, or none was."""
        return self._origin.epoch_at(index - 1) if index > self._origin.first_index() else 0

    def _reach(self) -> int:
        return _stop(self._origin, self._options, self._origin.settled().next_index)

    def _check(self, offset: dict[str, Any]) -> None:
        """Refuse to go on where the stream is not what this query has been reading."""
        name = self._origin.name
        if offset["log"] != self._id:
            raise Truncated(
                f"stream {name!r} is not the one that this query has read: it was dropped and made anew; "
                "start again with another checkpointLocation"
            )
        index, end = int(offset["index"]), self._origin.settled().next_index
        epoch = self._epoch_before(index) if index <= end else 0
        if index > end or (epoch and offset["epoch"] and epoch != offset["epoch"]):
            raise Truncated(
                f"stream {name!r} was cut off below index {index}, up to which this query has read, or put "
                "back from a copy: start again with another checkpointLocation"
            )

    def _remember(self, index: int) -> None:
        """Let retention remove what lies below `index`, and nothing else."""
        if self._options.position is None:
            return
        if self._position is None:
            self._position = open_position(self._origin, self._options.position)
        self._position.save(index)

    def __getstate__(self) -> dict[str, Any]:
        """For Spark's workers: they read, and remember nothing."""
        return {**self.__dict__, "_position": None}


def read_partition(
    origin: Origin, projection: Projection, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, SpanPartition):
        return iter(())  # what Spark makes of a plan without parts
    return projection.batches(origin.read(partition.span, projection.stored))


def _start(origin: Origin, options: Options, first: int, end: int) -> int:
    if options.start_key is not None:
        return origin.index_of(options.start_key)
    match options.start_index:
        case None | "earliest":
            return first
        case "latest":
            return end
        case int(index):
            if 0 < index < first and options.fail_on_data_loss:
                raise Trimmed(
                    f"stream {origin.name!r} begins at index {first}: {index} has been removed; read on "
                    "from there with failOnDataLoss=false"
                )
            return max(index, first)
    raise BadSettings(f"startIndex is a number, 'earliest' or 'latest', not {options.start_index!r}")


def _stop(origin: Origin, options: Options, end: int) -> int:
    if options.end_key is not None:
        return min(end, origin.index_of(options.end_key))
    return end if options.end_index is None else min(end, options.end_index)


def open_position(origin: Origin, name: str) -> Position:
    """The position; a query that was killed may hold it for a moment longer."""
    deadline = time.monotonic() + _POSITION_WAIT_S
    while True:
        try:
            return origin.remember(name)
        except WriterTaken:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.2)
