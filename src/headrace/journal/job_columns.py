"""Jobs to be put as an Arrow table, and back: how a batch of them travels. Null means: as if it was left out.

resource   binary
priority   int16
due_us     int64     when it is due
domain     string
type       int8      of the value, as FJ numbers them
value      binary
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from headrace.journal import checks
from headrace.journal.batch_verbs import one_or_each
from headrace.journal.errors import BadRequest
from headrace.journal.job import Data
from headrace.journal.job_verbs import DEFAULT_PRIORITY
from headrace.journal.value import decode, encode

T = TypeVar("T")

JOB_COLUMNS = pa.schema(
    [
        pa.field("resource", pa.binary(), nullable=False),
        pa.field("priority", pa.int16()),
        pa.field("due_us", pa.int64()),
        pa.field("domain", pa.string()),
        pa.field("type", pa.int8()),
        pa.field("value", pa.binary()),
    ]
)


def job_columns(
    resources: Iterable[str],
    priority: int | Sequence[int],
    due_us: Sequence[int | None] | None,
    values: Iterable[Data] | None,
    domain: str | Sequence[str | None] | None,
) -> pa.RecordBatch:
    """What `put_batch` was given, checked as far as one can without the journal."""
    names = [checks.resource_bytes(name) for name in checks.texts(resources, "resources")]
    size = len(names)
    coded = _one_each(values, size, "values", encode)
    columns: list[list[Any]] = [
        names,
        _one_each(priority, size, "priorities", checks.priority),
        _one_each(due_us, size, "due times", lambda due: None if due is None else checks.time_us(due)),
        _one_each(domain, size, "domains", lambda own: None if own is None else checks.domain(own)),
        [kind for kind, _value in coded],
        [value for _kind, value in coded],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, JOB_COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=JOB_COLUMNS)


def batch_of(jobs: pa.Table) -> dict[str, Any]:
    """What `put_batch` takes; BadRequest if the columns are not those."""
    unknown = [name for name in jobs.column_names if name not in JOB_COLUMNS.names]
    if unknown or "resource" not in jobs.column_names:
        raise BadRequest(f"jobs have the columns {', '.join(JOB_COLUMNS.names)}: not {jobs.column_names}")
    given: dict[str, list[Any]] = {}
    for name in jobs.column_names:
        try:
            given[name] = jobs.column(name).cast(JOB_COLUMNS.field(name).type).to_pylist()
        except pa.ArrowException as error:
            raise BadRequest(f"the column {name!r} of jobs: {error}") from error
    if None in given["resource"]:
        raise BadRequest("every job has a resource")
    batch: dict[str, Any] = {"resources": [checks.text(name) for name in given["resource"]]}
    if "priority" in given:
        batch["priority"] = [DEFAULT_PRIORITY if rank is None else rank for rank in given["priority"]]
    if "value" in given:
        kinds = given.get("type") or [None] * jobs.num_rows
        pairs = zip(kinds, given["value"], strict=True)
        batch["values"] = [
            None if raw is None else raw if kind is None else decode(kind, raw) for kind, raw in pairs
        ]
    return batch | {name: given[name] for name in ("due_us", "domain") if name in given}


def _one_each(given: Any, count: int, what: str, check: Callable[[Any], T]) -> list[T]:
    looked_at = one_or_each(given, count, what, check)
    return looked_at if isinstance(looked_at, list) else [looked_at] * count
