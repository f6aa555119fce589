"""A series: many events of one kind that happen at once, by columns.

    Series(Event(TAKE, now, [7, 8, 9], [b"a", b"b", b"c"], until=until, attempts=1), 3)

A batch of jobs that are put, taken or done says the same of each, but for a few columns. To make an event, a
row of the log and a step of the fold for each costs Python ten times what it costs to go over lists. So a
series is folded as a whole (`JobTable.fold_series`), and its columns become those of the log. In the tail, in
the log and in a replay it is what it says: one event after the other, in order.

The jobs of a series have nothing to do with one another: no resource is in it twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import pyarrow as pa

from headrace.journal.collection import PIECE, let_others_in
from headrace.journal.columns import column_of, column_of_one
from headrace.journal.events import SCHEMA, Event, to_batch

SERIES_EVENTS = 8192
"""The most in one series: the background makes a batch of it at once."""
SERIES_BYTES = 8 << 20
"""Of keys and values; where they are larger than that, a series saves nothing."""


class Series:
    __slots__ = ("bytes", "columns", "count")

    def __init__(self, columns: Any, count: int) -> None:
        """`columns` is an Event. What is a list in it has one value for each; all else is one for all."""
        self.columns = columns
        self.count = count
        keys, value = columns.key, columns.value
        self.bytes = sum(map(len, keys))
        """Of keys and values."""
        if value:
            self.bytes += sum(map(len, value)) if type(value) is list else count * len(value)

    def events(self) -> Iterator[tuple[Any, ...]]:
        """Each as the plain tuple of an event."""
        return zip(*map(each, self.columns))  # noqa: B905 - what is the same for all has no end

    def to_batch(self) -> pa.RecordBatch:
        arrays = [
            column_of(column, field.type)
            if type(column) is list
            else column_of_one(column, self.count, field.type)
            for column, field in zip(self.columns, SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


Queued = Event | Series


def each(column: Any) -> Any:
    """A column as something to go over: the list, or the same again and again."""
    return column if type(column) is list else repeat(column)


def flat(queued: list[Queued]) -> list[Any]:
    """All as events."""
    return list(chain.from_iterable(one.events() if isinstance(one, Series) else (one,) for one in queued))


def batches_of(queued: Sequence[Queued], most: int | None = None) -> Iterator[pa.RecordBatch]:
    """All as batches, one after the other; between them, other threads have their turn.

    Events that together have more than `most` bytes are batches of their own: an array of Arrow takes 2 GiB.
    """
    at = 0
    while at < len(queued):
        if at:
            let_others_in()
        one = queued[at]
        if isinstance(one, Series):
            yield one.to_batch()
            at += 1
        else:
            events: list[Any] = list(queued[at : at + PIECE])
            kinds = list(map(type, events))
            if Series in kinds:
                del events[kinds.index(Series) :]
            if (
                most is None
                or sum(len(event.value or b"") + len(event.key or b"") for event in events) <= most
            ):
                yield to_batch(events)
            else:
                yield from (to_batch([event]) for event in events)
            at += len(events)
