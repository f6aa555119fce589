"""Pouring: events become rows of the log, all of them or none.

What one pour brings is one atomic group, however many frames it takes: whoever reads the log or copies it
never has a part of an operation. A log in containers takes no more at once than one container holds. There
what is poured is cut, at *borders* between operations; inside of one only if that alone is too large, as the
leases of very many jobs may be.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import pyarrow as pa

from headrace.journal.events import SCHEMA
from headrace.journal.series import Queued, batches_of
from headrace.kernel.errors import TooLarge
from headrace.log.log import Log

_BATCH_EVENTS = 65_536
_BATCH_BYTES = 64 << 20


def table_of(queued: Sequence[Queued], size: int) -> pa.Table:
    """The events, which have about `size` bytes, as batches that each fit a frame."""
    batches: list[pa.RecordBatch] = []
    parts: list[pa.RecordBatch] = []
    rows = taken = 0
    for part in batches_of(queued, None if size <= _BATCH_BYTES else _BATCH_BYTES):
        if parts and (rows + part.num_rows > _BATCH_EVENTS or taken + part.nbytes > _BATCH_BYTES):
            batches.append(pa.concat_batches(parts))
            parts, rows, taken = [], 0, 0
        parts.append(part)
        rows += part.num_rows
        taken += part.nbytes
    if parts:
        batches.append(pa.concat_batches(parts))
    return pa.Table.from_batches(batches, SCHEMA)


def append_some(
    log: Log, events: pa.Table, borders: Sequence[int], *, beyond_limit: bool = False
) -> pa.Table:
    """Append events as one group, all of them if a container takes so much; what is left of them.

    `borders` are indexes of the log, in order, at which operations begin. `beyond_limit`: see `Log.append`.
    """
    count = events.num_rows
    containers = log.meta.settings.containers
    if containers is not None:  # small portions leave little of a container unused
        share = containers.bytes // 4
        count = _cut(log.next_index, count, min(count, count * share // events.nbytes), borders)
    while True:
        try:
            log.append(events.slice(0, count), beyond_limit=beyond_limit)
        except TooLarge:
            if count == 1:
                raise
            count = _cut(log.next_index, count - 1, count // 2, borders)
        else:
            return events.slice(count)


def _cut(base: int, most: int, wanted: int, borders: Sequence[int]) -> int:
    """How many events from `base` on, up to `most` and rather `wanted`, end where an operation does."""
    at = bisect_right(borders, base + wanted)
    if at and borders[at - 1] > base:
        return borders[at - 1] - base
    if at < len(borders) and borders[at] <= base + most:
        return borders[at] - base
    return max(1, wanted) if wanted < most else most
