"""The verbs of a journal that are about jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from headrace.journal import checks
from headrace.journal.checks import resource_bytes
from headrace.journal.engine import Engine
from headrace.journal.errors import BadRequest
from headrace.journal.events import EVENT_BYTES
from headrace.journal.job import Data, Job, Nothing
from headrace.journal.job_operations import Wanted, domain_of
from headrace.journal.new_jobs import NewJob
from headrace.journal.rows import JobRow
from headrace.journal.value import decode, encode
from headrace.kernel.durations import Duration, microseconds

T = TypeVar("T")
_new = tuple.__new__
DEFAULT_PRIORITY = 128

JOB_TABLE = pa.schema(
    [
        ("id", pa.int64()),
        ("resource", pa.string()),
        ("domain", pa.string()),
        ("priority", pa.int16()),
        ("due", pa.timestamp("us", "UTC")),
        ("attempts", pa.int32()),
        ("lease_until", pa.timestamp("us", "UTC")),
        ("type", pa.int8()),
        ("value", pa.binary()),
    ]
)
"""What `next_batch` answers."""


class JobVerbs:
    _engine: Engine

    def put(
        self,
        resource: str,
        *,
        priority: int = DEFAULT_PRIORITY,
        after: Duration | None = None,
        due_us: int | None = None,
        value: Data = None,
        domain: str | None = None,
        ttl: Duration | None = None,
        persist: bool = True,
    ) -> int:
        """Ask for work on a resource; the job's id. It is on the disk when this returns.

        A pending job of that resource is updated, not doubled. While the resource is worked on, the new job
        waits beside it. `priority` is 0 to 255, smaller first; `after` or `due_us` say when it is due;
        `ttl` how long it is wanted at all.
        """
        engine, raw = self._engine, resource_bytes(resource)
        kind, data = encode(value)
        checks.size(data, engine.value_bytes)
        checks.priority(priority)
        name = domain_of(resource) if domain is None else checks.domain(domain)
        if due_us is not None:
            checks.time_us(due_us)
        delay = 0 if after is None else microseconds(after)
        life = None if ttl is None else microseconds(ttl)

        def operation(now: int) -> int:
            due = now + delay if due_us is None else due_us
            expires = None if life is None else now + life
            job = (raw, name, priority, due, kind, data, None, expires, persist)
            return engine.jobs.put(now, job)

        id_ = engine.do(operation, len(raw) + len(data))
        engine.wake_waiting()
        return id_

    def next(
        self,
        domain: str | None = None,
        *,
        lease: Duration | None = None,
        wait: Duration | None = None,
        delete: bool = False,
        fair: bool | None = None,
    ) -> Job | Nothing:
        """The next job that is due, leased to the caller; of that domain, or of any.

        With `wait`, blocks that long until there is one. `delete` takes it for good: at most once. `fair`
        serves the domains in turn, instead of by priority over all.
        """
        wanted = self._wanted(domain, lease, delete, fair)
        deadline = None if wait is None else time.monotonic() + microseconds(wait) / 1_000_000
        while True:
            seen = self._engine.wakes
            found = self._engine.do(partial(self._take, wanted=wanted))
            if deadline is None or not isinstance(found, Nothing):
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return found
            self._wait_for_job(found.next_at_us, left, seen)

    def done(self, job: Job | int, lease_until_us: int | None = None) -> None:
        """The work is done; the job is gone. LeaseLost if it was not ours any more.

        With an id instead of a job, whoever holds the lease, or only the one that ends at `lease_until_us`:
        for programs that keep nothing but numbers.
        """
        id_, until = held(job, lease_until_us)
        self._engine.do(lambda now: self._engine.jobs.done(now, id_, until))
        self._engine.wake_waiting()

    def fail(
        self, job: Job | int, retry_in: Duration | None = None, lease_until_us: int | None = None
    ) -> None:
        """The work failed; the job is due again after `retry_in`, or a time that grows with its attempts.

        If it has failed too often it is dead; if it was put again meanwhile, the newer one takes its place.
        """
        id_, until = held(job, lease_until_us)
        delay = None if retry_in is None else microseconds(retry_in)
        self._engine.do(
            lambda now: self._engine.jobs.fail(now, id_, until, None if delay is None else now + delay)
        )
        self._engine.wake_waiting()

    def extend(self, job: Job | int, lease: Duration) -> None:
        """Keep the job for `lease` from now on."""
        id_, until = held(job)
        length = microseconds(lease)

        def operation(now: int) -> int:
            self._engine.jobs.extend(now, id_, until, now + length)
            return now + length

        new_until = self._engine.do(operation)
        if isinstance(job, Job):
            job.lease_until_us = new_until

    def cancel(self, resource: str) -> None:
        """Forget the pending job of a resource."""
        raw = resource_bytes(resource)
        self._engine.do(lambda now: self._engine.jobs.drop(now, raw))

    def redrive(self, resources: Sequence[str] | None = None) -> int:
        """Dead jobs, all or those of some resources, are pending again; how many."""
        names = None if resources is None else checks.texts(resources, "resources")
        chosen = None if names is None else {resource_bytes(name) for name in names}

        def choose(row: JobRow) -> bool:
            return chosen is None or row.resource in chosen

        count = self._engine.do(lambda now: self._engine.jobs.redrive(now, choose))
        self._engine.wake_waiting()
        return count

    def redrive_as(self, repaired: Iterable[tuple[int, str | None, Data, int]]) -> int:
        """Put dead jobs back as (id, resource, value, priority) say, all or none of them; how many.

        Without a resource (None) a job keeps its own, and its domain, whatever their bytes are.
        One that is not dead any more is passed over, so that repeating this changes nothing. If the resource
        has a pending job by now, that one stays as it is, and the dead one is dropped.
        """
        jobs = [
            (id_, *_renamed(name), checks.priority(rank), *self._coded(value))
            for id_, name, value, rank in repaired
        ]
        brought = sum(len(raw or b"") + len(value) for _id, raw, _domain, _rank, _kind, value in jobs)
        self._engine.check_size(brought + 2 * EVENT_BYTES * len(jobs))

        def operation(now: int) -> int:
            dead = {row.id: row for row in self._engine.state.jobs.dead.values()}
            count = 0
            kept = sum(len(dead[job[0]].resource) for job in jobs if job[1] is None and job[0] in dead)
            self._engine.check_size(brought + kept + 2 * EVENT_BYTES * len(jobs))
            self._engine.admit(brought + kept + 400 * len(jobs))
            for id_, new, domain, rank, kind, value in jobs:
                row = dead.get(id_)
                if row is None:
                    continue
                raw = row.resource if new is None else new
                own = row.domain if row.resource == raw else domain
                newer = self._engine.jobs.newer(now, raw, row)
                self._engine.jobs.bury(now, row)
                if newer is None:
                    self._engine.jobs.put(now, NewJob(raw, own, rank, now, kind, value, now))
                    count += 1
            return count

        count = self._engine.do(operation, brought + 400 * len(jobs))
        self._engine.wake_waiting()
        return count

    # --- inside

    def _coded(self, value: Data) -> tuple[int, bytes]:
        kind, data = encode(value)
        checks.size(data, self._engine.value_bytes)
        return kind, data

    def _take(self, now: int, wanted: Wanted) -> Job | Nothing:
        domain, lease, delete, fair = wanted
        until = now + lease
        found = self._engine.jobs.take(now, _new(Wanted, (domain, until, delete, fair)))
        if found is None:
            return Nothing(self._engine.jobs.next_time(domain))
        row, value = found
        return Job(
            row.id,
            checks.text(row.resource),
            row.domain,
            row.priority,
            row.due,
            decode(row.type, value),
            row.attempts,
            0 if delete else until,
            self,
        )

    def _wanted(self, domain: str | None, lease: Duration | None, delete: bool, fair: bool | None) -> Wanted:
        settings = self._engine.settings
        if domain is not None:
            checks.domain(domain)
        length = self._engine.lease_us if lease is None else microseconds(lease)
        if length <= 0:
            raise BadRequest(f"a lease must last some time, not {lease!r}")
        return Wanted(domain or None, length, delete, settings.fair if fair is None else fair)

    def _wait_for_job(self, next_at_us: int | None, left_s: float, seen: int) -> None:
        """Sleep until a job is put, or the next one is due, or the time is over."""
        engine = self._engine
        if next_at_us is not None:
            left_s = min(left_s, max(0.0, (next_at_us - engine.clock.now_us()) / 1_000_000))
        engine.wait(left_s, seen)


def held(job: Job | int, until: int | None = None) -> tuple[int, int | None]:
    """Its id, and the end of its lease as proof if that is known."""
    return (job.id, job.lease_until_us) if isinstance(job, Job) else (checks.job_id(job), until)


def _renamed(name: str | None) -> tuple[bytes | None, str]:
    """The resource that a job is to have, and its domain; None if it keeps both."""
    return (None, "") if name is None else (resource_bytes(name), domain_of(name))
