"""Events: what a journal appends to its log. Its state is what they fold to, and nothing else.

    of jobs      PUT     complete: a pending job, new or changed
                 TAKE    leased, until a time
                 EXTEND  the lease ends later
                 RETRY   given back: pending again, due at a time
                 LAPSE   the lease ended without a word: pending again
                 DONE    worked on, or taken for good
                 DROP    gone without being done: cancelled, expired, or overtaken by a newer one
                 DEAD    failed too often: put aside
                 REVIVE  a dead one is pending again
                 HELD, GRAVE   complete: a leased or dead job, said again by the sweep
    of values    SET     complete: a value under a key
                 LINK    one more key for a value
                 DELETE  gone; the key remembers when, so that older writes cannot bring it back
                 ERASE   gone without a trace
                 TOUCH   its expiry moved
                 WORK    somebody works on it until a time

"Complete" events say all there is to say: the sweep writes them again near the end of the log for what is
still alive, so that the log's beginning can go. Hence an event may speak of a job or value that is not
known (its complete event was swept up and comes later): it is passed over.

Each is a row of typed columns, so that a journal's history is a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.journal.columns import column_of

_TIME = pa.timestamp("us", "UTC")

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("at", _TIME, nullable=False),
        pa.field("id", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("other", pa.binary()),
        pa.field("domain", pa.string()),
        pa.field("priority", pa.int16()),
        pa.field("due", _TIME),
        pa.field("until", _TIME),
        pa.field("expires", _TIME),
        pa.field("stamp", _TIME),
        pa.field("attempts", pa.int32()),
        pa.field("type", pa.int8()),
        pa.field("value", pa.binary()),
        pa.field("ttl", pa.int64()),
        pa.field("created", _TIME),
    ]
)
EVENT_BYTES = 100
"""About what an event takes in the log beside its key and value."""
_TYPES = [field.type for field in SCHEMA]


class Kind(IntEnum):
    PUT = 1
    TAKE = 2
    EXTEND = 3
    RETRY = 4
    LAPSE = 5
    DONE = 6
    DROP = 7
    DEAD = 8
    REVIVE = 9
    HELD = 10
    GRAVE = 11
    SET = 16
    LINK = 17
    DELETE = 18
    ERASE = 19
    TOUCH = 20
    WORK = 21


class Event(NamedTuple):
    """Times are microseconds since 1970."""

    kind: int
    at: int
    id: int | None = None
    key: bytes | None = None
    other: bytes | None = None
    domain: str | None = None
    priority: int | None = None
    due: int | None = None
    until: int | None = None
    expires: int | None = None
    stamp: int | None = None
    attempts: int | None = None
    type: int | None = None
    value: bytes | None = None
    ttl: int | None = None
    created: int | None = None


Fold = Callable[[Event, int], None]
"""How an event changes the state. The number is its index in the log; negative if it is not logged."""


def brief(kind: int, at: int, id: int, key: bytes) -> Event:  # noqa: A002
    """An event that says nothing but what became of a job; twice as quick as by keywords."""
    return _new(Event, (kind, at, id, key, *_NOTHING_ELSE))


_new = tuple.__new__
_NOTHING_ELSE = (None,) * (len(Event._fields) - 4)


def to_batch(events: Sequence[Event]) -> pa.RecordBatch:
    columns = zip(*events, strict=True)
    return pa.RecordBatch.from_arrays(
        [column_of(column, kind) for column, kind in zip(columns, _TYPES, strict=True)], schema=SCHEMA
    )


def from_batch(records: pa.RecordBatch) -> list[Event]:
    """The events of a batch whose columns are those of SCHEMA."""
    return [Event._make(row) for row in zip(*map(_values, records.columns), strict=True)]


def _values(column: pa.Array) -> list[Any]:
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
