"""The verbs of a journal that are about many jobs at once.

What comes in and goes out is columns, and stays columns on its way where it can (see `series`): a list has
one value for each job, anything else is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from sys import intern
from typing import Any, TypeVar

import pyarrow as pa

from headrace.journal import checks
from headrace.journal.collection import without_collection
from headrace.journal.columns import column_of, column_of_one
from headrace.journal.engine import BRIEF
from headrace.journal.errors import BadRequest
from headrace.journal.events import EVENT_BYTES
from headrace.journal.job import Data
from headrace.journal.job_operations import domain_of
from headrace.journal.job_verbs import DEFAULT_PRIORITY, JOB_TABLE, JobVerbs
from headrace.journal.leases import Finished, leases_of
from headrace.journal.new_jobs import NewJobs
from headrace.journal.rows import JobRow
from headrace.kernel.durations import Duration, microseconds

T = TypeVar("T")


class BatchVerbs(JobVerbs):
    def put_batch(
        self,
        resources: Iterable[str],
        *,
        priority: int | Sequence[int] = DEFAULT_PRIORITY,
        after: Duration | None = None,
        due_us: Sequence[int | None] | None = None,
        values: Iterable[Data] | None = None,
        domain: str | Sequence[str | None] | None = None,
        once: tuple[str, int] | None = None,
    ) -> list[int]:
        """Ask for work on many resources at once; their jobs' ids. All are on the disk when this returns.

        `once` = (writer, sequence) makes it safe to repeat: a batch whose sequence is not larger than the
        last one of that writer was put already, and [] is the answer.
        """
        names = checks.texts(resources, "resources")
        raws = checks.resources_bytes(names)
        size = len(names)
        coded = one_or_each(values, size, "values", self._coded)
        if type(coded) is list:
            kind, data = same([kind for kind, _ in coded]), same([data for _, data in coded])
        else:
            kind, data = coded
        priorities = same(one_or_each(priority, size, "priorities", checks.priority))
        given = one_or_each(domain, size, "domains", lambda own: None if own is None else checks.domain(own))
        domains = _domains(names, given)
        dues = same(
            one_or_each(due_us, size, "due times", lambda due: None if due is None else checks.time_us(due))
        )
        delay = 0 if after is None else microseconds(after)
        if once is not None:
            checks.once(once)
        engine = self._engine

        def operation(now: int) -> list[int]:
            if once is not None and not engine.values.first_time(now, *once):
                return []
            soon = now + delay
            if type(dues) is list:
                due: Any = [soon if due is None else due for due in dues]
            else:
                due = soon if dues is None else dues
            return engine.jobs.put_many(now, NewJobs(raws, domains, priorities, due, kind, data, None))

        payloads = sum(map(len, data)) if type(data) is list else len(data) * size
        brought = sum(map(len, raws)) + payloads
        engine.check_size(brought + EVENT_BYTES * size)
        with without_collection():
            ids = engine.do(operation, brought + 200 * size)
        engine.wake_waiting()
        return ids

    def next_batch(
        self,
        count: int,
        domain: str | None = None,
        *,
        lease: Duration | None = None,
        delete: bool = False,
        fair: bool | None = None,
    ) -> pa.Table:
        """Up to `count` jobs that are due, all leased, as one Arrow table (see JOB_TABLE)."""
        wanted = self._wanted(domain, lease, delete, fair)
        checks.count(count, "how many")
        jobs, there = self._engine.jobs, self._engine.state.jobs
        most = min(count, len(there.pending) + len(there.leased))  # room is reserved for no more than that

        def operation(now: int) -> list[Any]:
            until = now + wanted.until
            return _columns(jobs.take_many(now, wanted._replace(until=until), most), until)

        with without_collection():
            columns = self._engine.do(operation, 300 * most or BRIEF)
        return pa.Table.from_arrays(_arrays(columns), schema=JOB_TABLE)

    def done_batch(self, jobs: Finished) -> list[int]:
        """These jobs are done; the ids of those whose lease was lost.

        The table that `next_batch` answered, or a part of it, proves that they are the caller's. Ids alone
        finish jobs whoever holds their leases.
        """
        given, operations = leases_of(jobs), self._engine.jobs
        most = min(len(given.ids), len(self._engine.state.jobs.leased))  # no more of them can be done

        def operation(now: int) -> list[int]:
            held, lost = operations.still_held(now, given)
            return lost + operations.done_many(now, held)

        with without_collection():
            gone = self._engine.do(operation, 300 * most or BRIEF)
        self._engine.wake_waiting()
        return gone


def one_or_each(given: Any, count: int, what: str, check: Callable[[Any], T]) -> Any:
    """What was given, looked at: one for each job, or the same for all."""
    if given is None or isinstance(given, int | str):
        return check(given)
    values = list(given)
    if len(values) != count:
        raise BadRequest(f"{count} resources, but {len(values)} {what}")
    return [check(value) for value in values]


def same(column: Any) -> Any:
    """A list of one value again and again is that value for all."""
    return column[0] if type(column) is list and column and column.count(column[0]) == len(column) else column


def _domains(names: list[str], given: Any) -> Any:
    """As given, or by the names: most batches are of one site, which shows in how all of them begin."""
    if type(given) is list:
        return same(
            [intern(domain_of(name) if own is None else own) for name, own in zip(names, given, strict=True)]
        )
    if given is not None:
        return intern(given)
    if names:
        scheme = names[0].find("://")
        beginning = names[0][: names[0].find("/", scheme + 3) + 1]
        alone = 0 < scheme < len(beginning) and "[" not in beginning  # brackets may hold a slash
        if alone and all(map(str.startswith, names, repeat(beginning))):
            return intern(domain_of(beginning))
    return same([intern(domain_of(name)) for name in names])


def _columns(found: list[tuple[JobRow, bytes]], until: int) -> list[Any]:
    """Those of JOB_TABLE, as Python has them."""
    rows = [row for row, _ in found]
    return [
        [row.id for row in rows],
        [row.resource for row in rows],
        [row.domain for row in rows],
        [row.priority for row in rows],
        [row.due for row in rows],
        [row.attempts for row in rows],
        until,
        [row.type for row in rows],
        [value for _, value in found],
    ]


def _arrays(columns: list[Any]) -> list[pa.Array]:
    arrays, count = [], len(columns[0])
    for column, field in zip(columns, JOB_TABLE, strict=True):
        if field.name == "resource":
            arrays.append(_texts(column))
        elif type(shared := same(column)) is list:
            arrays.append(column_of(shared, field.type))
        else:
            arrays.append(column_of_one(shared, count, field.type))
    return arrays


def _texts(raws: list[bytes]) -> pa.Array:
    try:
        return column_of(raws, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:  # texts take no other bytes than UTF-8
        return column_of([raw.decode(errors="replace") for raw in raws], pa.string())
