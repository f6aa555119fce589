"""The view `journal`: every pending, leased and dead job of a journal, as rows.

    spark.read.format("headrace").option("path", "data").option("journal", "pages").load()

The state of a journal is a fold of its events, so one task reads it; another process may have the journal
open meanwhile. A lease that has ended without a word is still `leased` here until somebody asks for a job:
`lease_until` is in the past then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.journal.reading import read_state
from headrace.journal.rows import JobRow, Where
from headrace.journal.value import Type
from headrace.kernel.clock import SystemClock
from headrace.kernel.errors import NotFound
from headrace.spark.options import Options
from headrace.spark.origin import existing_store
from headrace.spark.types import arrow_schema, as_spark
from headrace.store import JOURNALS_DIRECTORY, Store

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
TYPE_NAMES = {int(kind): kind.name.lower() for kind in Type}


def journal_directory(store: Store, name: str) -> Path:
    """Where the journal is, or NotFound with those that are there."""
    if not store.has_journal(name):
        there = ", ".join(store.journals()[:5]) or "none"
        raise NotFound(
            f"there is no journal {name!r} in {store.path}: check the option 'journal' (there are: {there})"
        )
    return store.path / JOURNALS_DIRECTORY / name


@dataclass(frozen=True, slots=True)
class _Whole(InputPartition):
    """All there is, in one part."""

    value: int = 0


class JobsReader(DataSourceReader):
    def __init__(self, options: Options, schema: StructType) -> None:
        self._path = options.path
        self._journal = options.journal_name
        self._target = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        with existing_store(self._path) as store:
            journal_directory(store, self._journal)  # what is wrong is told before tasks start
        return [_Whole()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        clock = SystemClock()
        with existing_store(self._path) as store:
            rows = list(read_state(journal_directory(store, self._journal)).jobs.rows())
        now = clock.now_us()
        for at in range(0, len(rows), _ROWS):
            some = [_shown(row, now) for row in rows[at : at + _ROWS]]
            whole = pa.RecordBatch.from_pylist(some, schema=JOBS)
            yield as_spark([whole.column(name) for name in self._target.names], self._target)


def _shown(row: JobRow, now: int) -> dict[str, Any]:
    value = row.value or b""
    return {
        "id": row.id,
        "resource": row.resource.decode("utf-8", "replace"),
        "domain": row.domain,
        "state": _STATES.get(Where(row.where), "pending"),
        "priority": row.priority,
        "due": row.due,
        "age": (now - row.due) / 1e6,
        "attempts": row.attempts,
        "lease_until": row.lease if row.where == Where.LEASED else None,
        "died": row.lease if row.where == Where.DEAD else None,
        "type": TYPE_NAMES.get(row.type, f"type {row.type}"),
        "value": None if row.type == Type.VOID and not value else value,
        "text": value.decode("utf-8", "replace") if row.type == Type.STRING else None,
    }
