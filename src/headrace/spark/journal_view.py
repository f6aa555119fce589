"""The view `journal`: every pending, leased and dead job of a journal, as rows.

    spark.read.format("headrace").option("path", "data").option("journal", "pages").load()

The state of a journal is a fold of its events, so one task reads it. Over a path another process may have the
journal open meanwhile, and a lease that has ended without a word is still `leased` until somebody asks for a
job: `lease_until` is in the past then. A node answers from the journal that it has open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.journal.journal import JobInfo
from headrace.journal.reading import read_state
from headrace.journal.rows import JobRow, Where
from headrace.journal.value import Type, encode
from headrace.kernel.clock import SystemClock
from headrace.spark.journal_history import TYPE_NAMES, journal_directory, no_journal
from headrace.spark.options import Options
from headrace.spark.origin import existing_store
from headrace.spark.place import Place
from headrace.spark.types import arrow_schema, as_spark

_TIME = pa.timestamp("us", "UTC")
JOBS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("resource", pa.string(), nullable=False),
        pa.field("domain", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("priority", pa.int16(), nullable=False),
        pa.field("due", _TIME, nullable=False),
        pa.field("age", pa.float64(), nullable=False),
        pa.field("attempts", pa.int32(), nullable=False),
        pa.field("lease_until", _TIME),
        pa.field("died", _TIME),
        pa.field("type", pa.string(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("text", pa.string()),
    ]
)
"""`age` is how many seconds ago the job was due, below zero if it is yet to be."""

_ROWS = 1 << 14
_STATES = {Where.LEASED: "leased", Where.DEAD: "dead"}


@dataclass(frozen=True, slots=True)
class _Whole(InputPartition):
    """All there is, in one part."""

    value: int = 0


class JobsReader(DataSourceReader):
    def __init__(self, options: Options, schema: StructType) -> None:
        self._place = options.place
        self._journal = options.journal_name
        self._target = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        check_journal(self._place, self._journal)  # what is wrong is told before tasks start
        return [_Whole()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = iter(self._jobs())
        while some := [_shown(job, kind, value) for job, kind, value in islice(rows, _ROWS)]:
            whole = pa.RecordBatch.from_pylist(some, schema=JOBS)
            yield as_spark([whole.column(name) for name in self._target.names], self._target)

    def _jobs(self) -> Iterator[tuple[JobInfo, int, bytes]]:
        """All jobs, with the type and the bytes of their values."""
        if self._place.url is None:
            with existing_store(self._place.path) as store:
                rows = list(read_state(journal_directory(store, self._journal)).jobs.rows())
            yield from ((_info(row), row.type, row.value or b"") for row in rows)
            return
        with self._place.opened() as store:
            yield from ((job, *encode(job.value)) for job in store.journal(self._journal).jobs())


def check_journal(place: Place, name: str) -> None:
    """NotFound, with those that are there, if there is no such journal."""
    with place.opened() as store:
        if not store.has_journal(name):
            raise no_journal(name, str(place), store.journals())


def _info(row: JobRow) -> JobInfo:
    resource, state = row.resource.decode("utf-8", "replace"), _STATES.get(Where(row.where), "pending")
    until = row.lease or None
    return JobInfo(row.id, resource, row.domain, state, row.priority, row.due, row.attempts, until, None)


def _shown(job: JobInfo, kind: int, value: bytes) -> dict[str, Any]:
    now = SystemClock().now_us()
    return {
        "id": job.id,
        "resource": job.resource.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "domain": job.domain,
        "state": job.state,
        "priority": job.priority,
        "due": job.due_us,
        "age": (now - job.due_us) / 1e6,
        "attempts": job.attempts,
        "lease_until": job.until_us if job.state == "leased" else None,
        "died": job.until_us if job.state == "dead" else None,
        "type": TYPE_NAMES.get(kind, f"type {kind}"),
        "value": None if kind == Type.VOID and not value else value,
        "text": value.decode("utf-8", "replace") if kind == Type.STRING else None,
    }
