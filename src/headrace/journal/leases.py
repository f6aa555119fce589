"""Jobs that are finished together, and what proves that they are still the caller's: when each lease ends.

what `next_batch` answered    its columns `id` and `lease_until`, of all its rows or some
jobs, as `next` gave them     each knows its lease
ids                           no proof: whoever holds the leases
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from headrace.journal import checks
from headrace.journal.errors import BadRequest
from headrace.journal.job import Job

Finished: TypeAlias = Iterable[int] | Iterable[Job] | pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch


class Leases(NamedTuple):
    ids: list[int]
    until: list[int] | None = None
    """The end of the lease of each; None: without proof."""


def leases_of(given: Finished) -> Leases:
    if isinstance(given, pa.Table | pa.RecordBatch):
        for name in ("id", "lease_until"):
            if name not in given.schema.names:
                raise BadRequest(f"what next_batch answered has a column {name!r}; this has none")
        until = given.column("lease_until")
        if not pa.types.is_timestamp(until.type) or until.type.unit != "us":
            raise BadRequest(f"lease_until is a time in microseconds, not {until.type}")
        return Leases(_numbers(given.column("id")), _numbers(until.cast(pa.int64())))
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return Leases(_numbers(given))
    items: list[Any] = list(given) if isinstance(given, Iterable) else checks.numbers(given, "ids of jobs")
    if items and all(isinstance(item, Job) for item in items):
        return Leases([job.id for job in items], [job.lease_until_us for job in items])
    return Leases(checks.numbers(items, "ids of jobs"))


def _numbers(column: pa.Array | pa.ChunkedArray) -> list[int]:
    """A list of integers, where it can be without going over the values one by one."""
    if isinstance(column, pa.ChunkedArray):
        return [number for chunk in column.chunks for number in _numbers(chunk)]
    if isinstance(column, pa.Int64Array) and not column.null_count:
        numbers = array("q")
        numbers.frombytes(column.buffers()[1][8 * column.offset : 8 * (column.offset + len(column))])
        return numbers.tolist()
    return checks.numbers(column.to_pylist(), "ids of jobs")
