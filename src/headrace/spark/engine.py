"""The engine: running a producer over entries in order. Plain Python, the same in Spark and in tests.

`on_entry(stream, entry, state)` is called for each entry, in the order (key, stream, index), and answers
what is to be published: nothing, one output, or several. `on_head(key, state)` is called for every state
each time the merged HEAD passes a *tick*, a multiple of `every`, before the entries from that key on.
Ticks, not batches: so the calls are the same whatever the batches are.

An output is published with the order key of what caused it. All outputs are put in one order by their cause:
key, stream, index, then the order in which a call gave them; at a tick, by partition key (as the bytes of its
MessagePack form, which is one order for keys of any type).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from types import GeneratorType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.errors import KeyOrder, Refused
from headrace.log.keys import KeyColumn
from headrace.spark.states import States
from headrace.stream.declaration import KEY, Declaration
from headrace.stream.entry import Entry
from headrace.stream.gather import Gathered

TICK = -1
_TICKS_MAX = 1_000_000
_NEVER = 1 << 62
CAUSE = ("_k", "_o", "_i", "_n", "_p")
"""Columns that say what caused an output: key, stream (-1 at a tick), index, number, partition key."""


class Arrived(NamedTuple):
    """An entry on its way to a producer."""

    number: Any
    stream: int
    at: int
    partition: bytes
    entry: Entry


class Output(NamedTuple):
    number: Any
    stream: int
    at: int
    n: int
    partition: bytes
    value: Any


@dataclass(frozen=True, slots=True)
class Interval:
    """Key numbers: `start` up to, not including, `stop`; None: from the very first."""

    start: Any
    stop: Any


class Engine:
    def __init__(
        self, producer: Any, streams: Sequence[str], key: KeyColumn, every: Any, emit_from: Any = None
    ) -> None:
        self._producer = producer
        self._streams = streams
        self._key = key
        self._every = every if hasattr(producer, "on_head") else None
        self._names_partition = self._every is not None and len(signature(producer.on_head).parameters) > 2
        self._emit_from = emit_from

    def run(self, interval: Interval, arrived: Iterable[Arrived], states: States) -> Iterator[Output]:
        """What the producer makes of the entries and ticks of an interval, given in order."""
        on_entry, names, every, get = self._producer.on_entry, self._streams, self._every, states.get
        emit_from = self._emit_from
        tick = 0  # the number of the next one
        if every is not None and interval.start is not None:
            tick = first_tick(interval.start, every)
        begun = interval.start is not None
        for number, stream, index, partition, entry in arrived:
            if every is not None:
                if not begun:  # before the first entry of all there is no state
                    tick, begun = first_tick(number, every, behind=True), True
                while tick * every <= number:
                    tick = yield from self._tick(tick, number, states)
            made = on_entry(names[stream], entry, get(partition))
            if made is not None:
                for n, value in enumerate(_several(made)):  # a generator works only when it is walked through
                    if emit_from is None or number >= emit_from:
                        yield Output(number, stream, index, n, b"", value)
        while every is not None and begun and tick * every < interval.stop and states.all():
            tick = yield from self._tick(tick, interval.stop, states)

    def _tick(self, tick: int, last: Any, states: States) -> Generator[Output, None, int]:
        """Call on_head for every state; the next tick, or the first one from `last` on if nobody is there."""
        assert self._every is not None
        number = tick * self._every
        live = states.all()
        if not live:
            return max(tick + 1, first_tick(last, self._every))
        if (last - number) / self._every > _TICKS_MAX:
            raise Refused(
                f"HEAD moves from {number} to {last}, and on_head would be called {_TICKS_MAX:,} times and "
                f"more for each state on the way (head_every is {self._every}): move HEAD in smaller steps"
            )
        key = self._key.decode(self._key.sortable(number))
        on_head, decode = self._producer.on_head, msgspec.msgpack.decode
        for partition, state in live:
            made = on_head(key, state, decode(partition)) if self._names_partition else on_head(key, state)
            if made is not None:
                for n, value in enumerate(_several(made)):
                    if self._emit_from is None or number >= self._emit_from:
                        yield Output(number, TICK, 0, n, partition, value)
        return tick + 1


def first_tick(number: Any, every: Any, *, behind: bool = False) -> int:
    """The first tick that is at a key number or behind it; or behind it only.

    Found by trying, so that floats cannot be of two minds about it.
    """
    if math.isinf(number):
        return _NEVER if number > 0 else -_NEVER
    tick = int(number // every) - 1
    while tick * every < number or (behind and tick * every == number):
        tick += 1
    return tick


def _several(made: Any) -> Iterable[Any]:
    """What a call answered, as outputs: lists, tuples and generators are several."""
    return made if isinstance(made, list | tuple | GeneratorType) else (made,)


def in_order(outputs: Iterable[Output]) -> list[Output]:
    """Outputs of several buckets in the one order that they have."""
    return sorted(outputs, key=lambda each: (each.number, each.stream, each.partition, each.at, each.n))


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """How outputs are stored: what a producer gives, the schema of the stream, and its order key."""

    values: Declaration
    schema: pa.Schema
    order_by: str | None


def to_records(outputs: Iterable[Output], columns: OutputColumns, key: KeyColumn) -> pa.RecordBatch:
    """Outputs as a batch of the output stream's schema, with the columns of `CAUSE`."""
    made = columns.order_by == KEY  # a key that a function makes is that of the cause
    schema = pa.schema([field for field in columns.schema if not made or field.name != KEY])
    gathered = Gathered(columns.values, schema)
    causes = []
    for *cause, value in outputs:
        gathered.take(value)
        causes.append(cause)
    records = gathered.records()
    parts = zip(*causes, strict=True) if causes else [()] * len(CAUSE)
    kinds = (key.storage, pa.int32(), pa.int64(), pa.int32(), pa.binary())
    for name, values, kind in zip(CAUSE, parts, kinds, strict=True):
        records = records.append_column(name, pa.array(values, kind))
    if made:
        field = columns.schema.field(KEY)
        numbers = records.column(records.schema.get_field_index(CAUSE[0]))
        records = records.add_column(columns.schema.get_field_index(KEY), field, numbers.cast(field.type))
    elif columns.order_by is not None and records.num_rows:
        _check_keys(records, columns.order_by, key)
    return records


def _check_keys(records: pa.RecordBatch, order_by: str, key: KeyColumn) -> None:
    causes = records.column(records.schema.get_field_index(CAUSE[0]))
    right = pc.fill_null(pc.equal(KeyColumn(records.schema, order_by).numbers(records), causes), False)
    if not pc.all(right).as_py():
        row = pc.index(right, False).as_py()
        given = records.column(records.schema.get_field_index(order_by))[row]
        cause = key.decode(key.sortable(causes[row].as_py()))
        raise KeyOrder(
            f"an output has the order key {given}, and was caused at {cause}: outputs are published with the "
            "order key of their cause"
        )


def sorted_by_cause(records: pa.RecordBatch) -> pa.RecordBatch:
    """The outputs of all buckets in their one order, without the columns that told it."""
    keys = [(name, "ascending") for name in ("_k", "_o", "_p", "_i", "_n")]
    ordered = records.take(pc.sort_indices(records, sort_keys=keys)) if records.num_rows > 1 else records
    return ordered.select([name for name in ordered.schema.names if name not in CAUSE])


def partition_key(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)
