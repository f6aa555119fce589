"""The verbs of a journal that are about jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from headrace.journal.engine import Engine
from headrace.journal.errors import BadRequest
from headrace.journal.job import Data, Job, Nothing
from headrace.journal.job_operations import NewJob, Wanted, domain_of
from headrace.journal.rows import JobRow
from headrace.journal.value import decode, encode
from headrace.kernel.durations import Duration, microseconds
from headrace.kernel.errors import TooLarge

DEFAULT_PRIORITY = 128
RESOURCE_BYTES_MAX = 65_535

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
        raw, kind_value = self._resource(resource), encode(value)
        self._check_value(kind_value[1])
        if not isinstance(priority, int) or not 0 <= priority <= 255:
            raise BadRequest(f"a priority is a number from 0 to 255, not {priority!r}")
        name = domain_of(resource) if domain is None else domain
        delay = None if after is None else microseconds(after)
        life = None if ttl is None else microseconds(ttl)
        engine = self._engine

        def operation(now: int) -> int:
            due = due_us if due_us is not None else now if delay is None else now + delay
            expires = None if life is None else now + life
            job = NewJob(raw, name, priority, due, *kind_value, now, expires, persist)
            return engine.jobs.put(now, job)

        id_ = engine.do(operation, len(raw) + len(kind_value[1]))
        self._engine.wake_waiting()
        return id_

    def put_batch(
        self,
        resources: Iterable[str],
        *,
        priority: int = DEFAULT_PRIORITY,
        after: Duration | None = None,
        values: Iterable[Data] | None = None,
        domain: str | None = None,
    ) -> list[int]:
        """Ask for work on many resources at once; their jobs' ids. All are on the disk when this returns."""
        if not isinstance(priority, int) or not 0 <= priority <= 255:
            raise BadRequest(f"a priority is a number from 0 to 255, not {priority!r}")
        names = list(resources)
        raws = [self._resource(name) for name in names]
        coded = [encode(None)] * len(names) if values is None else [encode(value) for value in values]
        if len(coded) != len(names):
            raise BadRequest(f"{len(names)} resources, but {len(coded)} values")
        for _kind, value in coded:
            self._check_value(value)
        domains = [domain_of(name) if domain is None else domain for name in names]
        delay = 0 if after is None else microseconds(after)
        put = self._engine.jobs.put

        def operation(now: int) -> list[int]:
            due = now + delay
            return [
                put(now, NewJob(raw, name, priority, due, kind, value, now))
                for raw, name, (kind, value) in zip(raws, domains, coded, strict=True)
            ]

        size = sum(map(len, raws)) + sum(len(value) for _kind, value in coded) + 200 * len(raws)
        ids = self._engine.do(operation, size)
        self._engine.wake_waiting()
        return ids

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
            found = self._engine.do(lambda now: self._take(now, wanted))
            if deadline is None or not isinstance(found, Nothing):
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return found
            self._wait_for_job(found.next_at_us, left)

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
        take = self._engine.jobs.take

        def operation(now: int) -> list[tuple[Any, ...]]:
            until = now + wanted.until
            rows: list[tuple[Any, ...]] = []
            while len(rows) < count and (found := take(now, wanted._replace(until=until))) is not None:
                row, value = found
                resource = row.resource.decode("utf-8", "surrogateescape")
                rows.append(
                    (
                        row.id,
                        resource,
                        row.domain,
                        row.priority,
                        row.due,
                        row.attempts,
                        until,
                        row.type,
                        value,
                    )
                )
            return rows

        rows = self._engine.do(operation, 300 * count)
        columns = zip(*rows, strict=True) if rows else [[] for _ in JOB_TABLE]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, JOB_TABLE, strict=True)]
        return pa.Table.from_arrays(arrays, schema=JOB_TABLE)

    def done(self, job: Job) -> None:
        """The work is done; the job is gone. LeaseLost if it was not ours any more."""
        self._engine.do(lambda now: self._engine.jobs.done(now, job.id, job.lease_until_us))
        self._engine.wake_waiting()

    def done_batch(self, ids: Iterable[int] | pa.Array | pa.ChunkedArray) -> list[int]:
        """These jobs are done; the ids of those whose lease was lost."""
        numbers = ids.to_pylist() if isinstance(ids, pa.Array | pa.ChunkedArray) else list(ids)
        lost = self._engine.do(lambda now: self._engine.jobs.done_many(now, numbers), 300 * len(numbers))
        self._engine.wake_waiting()
        return lost

    def fail(self, job: Job, retry_in: Duration | None = None) -> None:
        """The work failed; the job is due again after `retry_in`, or a time that grows with its attempts.

        If it has failed too often it is dead; if it was put again meanwhile, the newer one takes its place.
        """
        delay = None if retry_in is None else microseconds(retry_in)
        self._engine.do(
            lambda now: self._engine.jobs.fail(
                now, job.id, job.lease_until_us, None if delay is None else now + delay
            )
        )
        self._engine.wake_waiting()

    def extend(self, job: Job, lease: Duration) -> None:
        """Keep the job for `lease` from now on."""
        length = microseconds(lease)

        def operation(now: int) -> int:
            self._engine.jobs.extend(now, job.id, job.lease_until_us, now + length)
            return now + length

        job.lease_until_us = self._engine.do(operation)

    def cancel(self, resource: str) -> None:
        """Forget the pending job of a resource."""
        raw = self._resource(resource)
        self._engine.do(lambda now: self._engine.jobs.drop(now, raw))

    def redrive(self, resources: Sequence[str] | None = None) -> int:
        """Dead jobs, all or those of some resources, are pending again; how many."""
        chosen = None if resources is None else {self._resource(name) for name in resources}

        def choose(row: JobRow) -> bool:
            return chosen is None or row.resource in chosen

        count = self._engine.do(lambda now: self._engine.jobs.redrive(now, choose))
        self._engine.wake_waiting()
        return count

    # --- inside

    def _take(self, now: int, wanted: Wanted) -> Job | Nothing:
        until = now + wanted.until
        found = self._engine.jobs.take(now, wanted._replace(until=until))
        if found is None:
            return Nothing(self._engine.jobs.next_time(wanted.domain))
        row, value = found
        return Job(
            row.id,
            row.resource.decode("utf-8", "surrogateescape"),
            row.domain,
            row.priority,
            row.due,
            decode(row.type, value),
            row.attempts,
            until,
            self,
        )

    def _wanted(self, domain: str | None, lease: Duration | None, delete: bool, fair: bool | None) -> Wanted:
        settings = self._engine.settings
        length = settings.lease_us if lease is None else microseconds(lease)
        if length <= 0:
            raise BadRequest(f"a lease must last some time, not {lease!r}")
        return Wanted(domain or None, length, delete, settings.fair if fair is None else fair)

    def _wait_for_job(self, next_at_us: int | None, left_s: float) -> None:
        """Sleep until a job is put, or the next one is due, or the time is over."""
        engine = self._engine
        if next_at_us is not None:
            left_s = min(left_s, max(0.0, (next_at_us - engine.clock.now_us()) / 1_000_000))
        engine.wait(left_s)

    def _resource(self, resource: str) -> bytes:
        if not isinstance(resource, str) or not resource:
            raise BadRequest(f"a resource is a text that is not empty, not {resource!r}")
        raw = resource.encode("utf-8", "surrogateescape")
        if len(raw) > RESOURCE_BYTES_MAX:
            raise TooLarge(f"a resource has up to {RESOURCE_BYTES_MAX} bytes, not {len(raw)}")
        return raw

    def _check_value(self, value: bytes) -> None:
        limit = self._engine.settings.value_bytes
        if len(value) > limit:
            raise TooLarge(f"a value has up to {limit} bytes, not {len(value)}")
