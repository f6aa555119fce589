"""The merging source: several streams as one, in the order of their keys.

A micro-batch holds exactly the entries of all streams with `previous cut <= key < cut`, where a cut is at
most the smallest HEAD: below it no stream can get another entry. Ties are never split, batches are disjoint
intervals of keys, and inside one the order is (key, stream, index). So the order of all entries is the same
whatever the sizes of the batches.

Entries travel packed: one row of Spark's holds thousands of them as an Arrow message, with the *bucket* (a
stable hash of the partition key) that Spark groups by. Each batch has one more row for every bucket, which
says what interval it covers: also who gets no entries learns that time has passed.

An offset is `{"cut": k, "at": [index of each stream], "logs": [id of each], "buckets": n}`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from headrace.kernel.errors import Refused, Trimmed, Truncated
from headrace.log.keys import KeyColumn
from headrace.log.mark import Settled
from headrace.log.plan import Span
from headrace.log.segment_reader import Batch
from headrace.spark.engine import first_tick
from headrace.spark.origin import Origin, Position
from headrace.spark.place import Place
from headrace.spark.projection import INDEX
from headrace.spark.reader import open_position
from headrace.spark.types import arrow_schema

MERGED_SCHEMA = StructType(
    [
        StructField("bucket", IntegerType(), False),
        StructField("stream", IntegerType(), False),
        StructField("packed", BinaryType(), False),
    ]
)
INTERVAL = -1
"""The `stream` of the row that says what interval of keys a batch covers."""
_PART_ROWS = 1 << 16
_PACK_ROWS = 1 << 14


class MergePlan(msgspec.Struct, frozen=True):
    """All that the source must know; travels as JSON in an option."""

    streams: list[str]
    partition_by: list[str | None]
    buckets: int
    entries: int
    start: int
    """The first cut, as sortable bits: 0 begins with the oldest entry."""
    every: int | float | None
    """The distance of ticks in key numbers: a HEAD that passes one must be delivered without delay."""
    heartbeat_s: float
    position: str
    """The name under which it remembers how far each stream was read."""


def merge_plan(text: str) -> MergePlan:
    return msgspec.json.decode(text, type=MergePlan)


class Interval(msgspec.Struct, frozen=True):
    """The keys that a batch covers, as sortable bits: `start` up to, not including, `stop`."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class MergePartition(InputPartition):
    spans: tuple[tuple[int, Span], ...]
    interval: Interval | None


class MergeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, place: Place, plan: MergePlan) -> None:
        self._plan = plan
        self._origins: list[Origin] = [place.stream(name) for name in plan.streams]
        abouts = [origin.about() for origin in self._origins]
        self._logs = [about.id for about in abouts]
        assert abouts[0].order_by is not None
        self._key = KeyColumn(abouts[0].schema, abouts[0].order_by)
        self._stop_at: int | None = None
        self._moved_s = time.monotonic()
        self._seen: tuple[Any, ...] = ()
        self._positions: list[Position] = []

    def initialOffset(self) -> dict[str, Any]:
        cut = self._plan.start
        at = [origin.index_of(cut) if cut else origin.first_index() for origin in self._origins]
        self._remember(at)
        return self._offset(cut, at)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        settled = self._look()
        self._check(start, settled)
        begun: int = start["cut"]
        cut = self._reach(settled)
        if cut <= begun:
            return start
        at = self._places(cut)
        entries = sum(at) - sum(start["at"])
        if entries > self._plan.entries:
            cut, at = self._nearer_cut(start, at, cut)
        elif entries == 0 and not self._must_tell(begun, cut):
            return start
        self._moved_s = time.monotonic()
        return self._offset(cut, at)

    def reportLatestOffset(self) -> dict[str, Any]:
        settled = self._look()
        return self._offset(self._reach(settled), [each.next_index for each in settled])

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop_at = min(each.head_key for each in self._look())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        settled = self._look()
        self._check(start, settled)
        self._check(end, settled)
        spans: list[tuple[int, Span]] = []
        for stream, origin in enumerate(self._origins):
            begun, stop = start["at"][stream], end["at"][stream]
            spans += [(stream, span) for span in origin.plan(begun, stop, _PART_ROWS)]
        interval = Interval(start["cut"], end["cut"])
        parts: list[list[tuple[int, Span]]] = [[]]
        rows = 0
        for stream, span in spans:
            if rows >= _PART_ROWS:
                parts.append([])
                rows = 0
            parts[-1].append((stream, span))
            rows += span.stop - span.start
        return [MergePartition(tuple(part), interval if n == 0 else None) for n, part in enumerate(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, MergePartition)
        buckets = self._plan.buckets
        if partition.interval is not None:
            told = msgspec.json.encode(partition.interval)
            yield _rows([(bucket, INTERVAL, told) for bucket in range(buckets)])
        for stream, span in partition.spans:
            field = self._plan.partition_by[stream]
            for batch in self._origins[stream].read(span, None):
                for start in range(batch.base_index, batch.next_index, _PACK_ROWS):
                    part = batch.slice(start, start + _PACK_ROWS)
                    yield _rows([(bucket, stream, data) for bucket, data in _packed(part, field, buckets)])

    def commit(self, end: dict[str, Any]) -> None:
        self._remember(end["at"])

    def stop(self) -> None:
        while self._positions:
            self._positions.pop().close()

    def _remember(self, at: list[int]) -> None:
        """Let retention remove what this job has read of its inputs, and nothing else."""
        if not self._positions:
            self._positions = [open_position(origin, self._plan.position) for origin in self._origins]
        for position, index in zip(self._positions, at, strict=True):
            position.save(index)

    def __getstate__(self) -> dict[str, Any]:
        """For Spark's workers: they read, and remember nothing."""
        return {**self.__dict__, "_positions": []}

    # --- cuts

    def _look(self) -> list[Settled]:
        """How far each stream reaches: asked many times a second, so looked up once for each answer."""
        return [origin.settled() for origin in self._origins]

    def _reach(self, settled: list[Settled]) -> int:
        head = min(each.head_key for each in settled)
        return head if self._stop_at is None else min(head, self._stop_at)

    def _places(self, cut: int) -> list[int]:
        return [origin.index_of(cut) for origin in self._origins]

    def _must_tell(self, begun: int, cut: int) -> bool:
        """Whether HEAD alone is worth a batch: a tick is due, a run is to end here, or for a heartbeat."""
        if self._stop_at is not None or time.monotonic() - self._moved_s >= self._plan.heartbeat_s:
            return True
        every = self._plan.every
        if every is None or not begun:
            return False
        return bool(first_tick(self._key.number(begun), every) * every < self._key.number(cut))

    def _nearer_cut(self, start: dict[str, Any], at: list[int], reach: int) -> tuple[int, list[int]]:
        """A cut before which there are about as many entries as a batch may have, and its places.

        At first each stream has an equal share of them; if that makes a small batch, because one is much
        busier than the others, larger shares are tried.
        """
        most, begun = self._plan.entries, sum(start["at"])
        share = most // len(at)
        cut, places = self._cut_by_share(start, at, share, reach)
        while sum(places) - begun <= most // 2 and share < most:
            share = min(most, 2 * share + 1)
            farther = self._cut_by_share(start, at, share, reach)
            if sum(farther[1]) - begun > most:
                break
            cut, places = farther
        return cut, places

    def _cut_by_share(
        self, start: dict[str, Any], at: list[int], share: int, reach: int
    ) -> tuple[int, list[int]]:
        """A cut before which no stream has more than its share; or one key, however often it is there."""
        keys = [
            origin.key_at(begun + share)
            for origin, begun, stop in zip(self._origins, start["at"], at, strict=True)
            if stop - begun > share
        ]
        nearest = min(keys, default=reach)
        places = self._places(nearest)
        if nearest > start["cut"] and places != start["at"]:
            return nearest, places
        return nearest + 1, self._places(nearest + 1)

    def _offset(self, cut: int, at: list[int]) -> dict[str, Any]:
        return {"cut": cut, "at": at, "logs": self._logs, "buckets": self._plan.buckets}

    def _check(self, offset: dict[str, Any], settled: list[Settled]) -> None:
        """Refuse to go on where the streams are not what this job has been reading."""
        if offset["logs"] != self._logs:
            raise Truncated(
                "the input streams are not the ones that this job has read (another order, or made anew): "
                "start again with another checkpoint"
            )
        if offset["buckets"] != self._plan.buckets:
            raise Refused(
                f"this job was started with {offset['buckets']} buckets, and its state is kept by them: it "
                f"cannot go on with {self._plan.buckets}"
            )
        seen = (offset["cut"], *settled)
        if seen != self._seen:
            for origin, at in zip(self._origins, offset["at"], strict=True):
                _check_place(origin, offset["cut"], at)
            self._seen = seen


def _check_place(origin: Origin, cut: int, at: int) -> None:
    """The entries below `at` are those below the cut, as they were: else some would be missing for ever."""
    first = origin.first_index()
    if at < first:
        raise Trimmed(
            f"stream {origin.name!r} begins at index {first}: entries from {at} on were removed before this "
            "job read them; start again with another checkpoint"
        )
    if cut and origin.index_of(cut) != at:
        raise Truncated(
            f"stream {origin.name!r} is not what this job has read up to index {at}: it was cut off, or put "
            "back from a copy; start again with another checkpoint"
        )


def bucket_of(key: Any, buckets: int) -> int:
    """The bucket of a partition key: the same in every process, for ever."""
    return zlib.crc32(msgspec.msgpack.encode(key)) % buckets


def _packed(batch: Batch, field: str | None, buckets: int) -> Iterator[tuple[int, bytes]]:
    """The entries of a batch by bucket, each as an Arrow message with a column of their indexes."""
    indexes = pa.arange(batch.base_index, batch.next_index)
    records = batch.records.append_column(INDEX, indexes)
    if field is None or buckets == 1:
        yield bucket_of(None, buckets), pack_message(records)
        return
    column = records.column(records.schema.get_field_index(field)).dictionary_encode()
    of_value = pa.array([bucket_of(value, buckets) for value in column.dictionary.to_pylist()], pa.int32())
    nulls = bucket_of(None, buckets)
    of_row = pc.fill_null(of_value.take(column.indices), nulls)
    for bucket in pc.unique(of_row).to_pylist():
        yield bucket, pack_message(records.filter(pc.equal(of_row, bucket)))


def pack_message(records: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write_batch(records)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpacked(data: bytes) -> pa.RecordBatch:
    """The one batch of a message."""
    return next(iter(pa.ipc.open_stream(data)))


def _rows(rows: list[tuple[int, int, bytes]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    target = arrow_schema(MERGED_SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)
