"""Journals as targets of the sinks: rows of a DataFrame become jobs, exactly once for each batch of a query.

    df.write.format("headrace").option("path", "data").option("journal", "pages").mode("append").save()

Tasks check their rows and stage them as jobs travel (`journal.job_columns`); the driver puts a batch in one
atomic operation of the journal, which remembers the query and the batch with it. A batch that Spark runs
again is there already. A write at once is atomic too, and with the option `writeId` it can be repeated. Apart
from that, a resource has one pending job however often it is put.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from headrace.journal.errors import JournalTaken
from headrace.journal.job_columns import JOB_COLUMNS, batch_of, job_columns
from headrace.journal.job_verbs import DEFAULT_PRIORITY
from headrace.journal.journal import Journal
from headrace.kernel.errors import SchemaMismatch
from headrace.spark.landing import when_free
from headrace.spark.options import Options
from headrace.spark.origin import made_store
from headrace.spark.types import arrow_schema
from headrace.store import open_store
from headrace.stream.staging import Run, StagingArea, read_runs, remove_runs, write_runs

if TYPE_CHECKING:
    from headrace.client.remote_journal import RemoteJournal
    from headrace.spark.place import AnyStore

_VALUES = (pa.string(), pa.binary(), pa.int64(), pa.float64(), pa.bool_())
_COLUMNS = {
    "resource": pa.string(),
    "priority": pa.int64(),
    "due": pa.timestamp("us", "UTC"),
    "domain": pa.string(),
}


@dataclass(frozen=True, slots=True)
class JobsTarget:
    """A journal that takes what Spark will give."""

    path: str
    journal: str
    writer: str
    write_id: str | None
    schema: pa.Schema
    """The columns that Spark gives."""

    @property
    def area(self) -> StagingArea:
        return StagingArea.of_jobs(self.path, self.journal)

    def stage(self, place: str, batches: Iterator[pa.RecordBatch]) -> tuple[Run, ...]:
        tables = staged_jobs(batches, self.schema)
        return tuple(write_runs(self.area.folder(place), tables, JOB_COLUMNS, None))

    def land(self, query: str, batch: int, runs: list[Run], *, head: int | None = None) -> int:
        put = self._put(runs, (f"spark:{self.writer}:{query}", batch))
        self.area.landed(query, batch)
        return put

    def land_whole(self, place: str, runs: list[Run]) -> int:
        put = self._put(runs, None if self.write_id is None else (f"spark-write:{self.write_id}", 0))
        self.clear(place)
        self.area.remove_abandoned()
        return put

    def discard(self, query: str, batch: int, runs: Iterable[Run]) -> None:
        remove_runs(runs)

    def clear(self, place: str) -> None:
        self.area.clear(place)

    def _put(self, runs: list[Run], once: tuple[str, int] | None) -> int:
        """All jobs of the runs in one operation; how many, 0 if that was done before."""
        jobs = batch_of(pa.Table.from_batches(read_runs(runs, None), JOB_COLUMNS))
        with open_store(self.path) as store, opened_journal(store, self.journal) as journal:
            return len(journal.put_batch(**jobs, once=once))


def staged_jobs(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows as jobs are staged, or SchemaMismatch with the first thing that is wrong."""
    for batch in batches:
        rows = _checked(pa.Table.from_batches([batch]).cast(schema))
        columns = (_column(rows, "priority", DEFAULT_PRIORITY), _column(rows, "due"), _column(rows, "value"))
        records = job_columns(rows["resource"].to_pylist(), *columns, _column(rows, "domain"))
        yield pa.Table.from_batches([records])


def _column(rows: pa.Table, name: str, default: int | None = None) -> list[Any]:
    if name not in rows.column_names:
        return [default] * rows.num_rows
    column = rows[name].cast(pa.int64()) if name == "due" else rows[name]
    return [default if each is None else each for each in column.to_pylist()]


def _checked(rows: pa.Table) -> pa.Table:
    resources = rows["resource"]
    if resources.null_count or pc.any(pc.equal(resources, "")).as_py():
        raise SchemaMismatch("the column 'resource' may not be null or empty, and is in some row")
    if "priority" in rows.column_names:
        ranks = pc.min_max(rows["priority"]).as_py()
        for rank in (ranks["min"], ranks["max"]):
            if rank is not None and not 0 <= rank <= 255:
                raise SchemaMismatch(f"the column 'priority' is 0 to 255, and is {rank} in some row")
    return rows


def jobs_target(options: Options, schema: StructType) -> JobsTarget:
    """The journal that the options name, made if it is not there, and its columns checked."""
    columns, path = given_columns(schema), options.place.path
    with made_store(path) as store:
        if not store.has_journal(options.journal_name):
            store.journal(options.journal_name).close()
    return JobsTarget(path, options.journal_name, options.writer, options.write_id, columns)


def given_columns(schema: StructType) -> pa.Schema:
    """What Spark gives, if jobs can be made of it."""
    fields = [_field(field) for field in arrow_schema(schema)]
    if "resource" not in [field.name for field in fields]:
        raise SchemaMismatch("a job needs a resource: name a column 'resource', of text")
    return pa.schema(fields)


def opened_journal(store: AnyStore, name: str) -> Journal | RemoteJournal:
    """The journal; another process may have it for a moment."""
    return when_free(lambda: store.journal(name), JournalTaken)


def _field(field: pa.Field) -> pa.Field:
    kind = _COLUMNS.get(field.name)
    if field.name == "value":
        kind = next((each for each in _VALUES if _fits(field.type, each)), None)
        if kind is None:
            raise SchemaMismatch(
                f"the column 'value' is {field.type}: a job's value is text, bytes, a whole number, a double "
                "or a boolean"
            )
    elif kind is None:
        known = ", ".join((*_COLUMNS, "value"))
        raise SchemaMismatch(f"a job has no {field.name!r}: its columns are {known}")
    elif not _fits(field.type, kind):
        raise SchemaMismatch(f"the column {field.name!r} is {field.type}; a job's is {kind}")
    return pa.field(field.name, kind)


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one is one of the other."""
    if given.equals(wanted):
        return True
    if pa.types.is_null(given):
        return True
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_signed_integer(given))
    return bool(pa.types.is_floating(wanted) and pa.types.is_floating(given))
