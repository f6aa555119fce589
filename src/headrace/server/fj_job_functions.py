"""What the functions of FJ that are about jobs do to a journal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Protocol

from headrace.journal import checks
from headrace.journal.checks import TIME_MAX_US
from headrace.journal.engine import Engine
from headrace.journal.errors import BadRequest, LeaseLost, NoSuchKey
from headrace.journal.job_operations import AnyJob, Wanted, domain_of
from headrace.journal.rows import JobRow
from headrace.server.fj_fields import REPLY_BYTES, check_key, moment, number, second_key
from headrace.wire.fj import (
    BUSY,
    DATA,
    LISTEN,
    OVERWRITE,
    PERSIST,
    QUERY,
    RANGE,
    UPDATE_TIMEOUT,
    WORKED_ON,
    Pair,
    Reply,
    Request,
)
from headrace.wire.fj_many import unpack_jobs, unpack_keys

_new = tuple.__new__


class Waiting(Protocol):
    """Who asks, and may want to be told when there is a job."""

    def wait_for_job(self, domain: bytes) -> None: ...


class JobFunctions:
    def __init__(self, engine: Engine) -> None:
        self.produced = 0
        """Bytes of resources and values in replies."""
        self._engine = engine
        self._most = engine.settings.value_bytes

    def put(self, request: Request, now: int) -> Reply:
        """SET with two keys: `<domain>:<priority>:<due>` and the resource."""
        _, identifier, flags, timestamp, timeout, _, key, upper, kind, value = request
        common, priority, due = _place(key)
        if flags & WORKED_ON:
            return self._give_back(request, now, priority, due)
        if priority is None:
            raise BadRequest("a job needs a priority from 0 to 255")
        stamp, expires = moment(timestamp) or now, None if timeout is None else moment(timeout)
        persist, most, due, put = flags & PERSIST != 0, self._most, due or now, self._engine.jobs.put
        if upper or not value:
            resource, data = upper or second_key(request), value or b""
            if resource[0] == 0 or len(data) > most:
                _refuse(resource, data, most)
            domain = common or domain_of(checks.text(resource))
            put(now, (resource, domain, priority, due, kind or 0, data, stamp, expires, persist))
            return _new(Reply, (identifier, 0, now, None, b"", None, None))
        jobs: list[AnyJob] = []
        for resource, type_, data in unpack_jobs(value):
            if not resource or resource[0] == 0 or len(data) > most:
                _refuse(resource, data, most)
            domain = common or domain_of(checks.text(resource))
            jobs.append((resource, domain, priority, due, type_, data, stamp, expires, persist))
        if expires is None:
            self._engine.jobs.put_many(now, jobs)
        else:
            for job in jobs:
                put(now, job)
        return _new(Reply, (identifier, 0, now, None, b"", None, None))

    def done_many(self, request: Request, now: int) -> Reply:
        """DELETE without a key: the jobs of many resources, all under one lease, are done."""
        if request.timeout is None:
            raise BadRequest("the end of the lease is needed, as NEXT told it")
        jobs, worked_on = self._engine.jobs, self._engine.state.jobs.worked_on
        jobs.tick(now)
        gone: list[Pair] = []
        ids: dict[int, None] = {}
        for resource in unpack_keys(request.value or b""):
            row = worked_on.get(resource)
            if row is None or row.lease != request.timeout or row.id in ids:
                gone.append(Pair(resource))
            else:
                ids[row.id] = None
        jobs.done_many(now, ids)
        return Reply(request.identifier, 0, now, None, b"", gone)

    def _give_back(self, request: Request, now: int, priority: int | None, due: int | None) -> Reply:
        resource = request.upper or b""
        row = self._engine.state.jobs.worked_on.get(resource)
        if request.timeout is None:
            raise BadRequest("the end of the lease is needed, as NEXT told it")
        if row is None:
            raise lost(resource)
        if request.flags & UPDATE_TIMEOUT:
            if not due or due <= now:
                raise BadRequest("a lease can only be extended to a time to come")
            self._engine.jobs.extend(now, row.id, request.timeout, due)
        else:
            self._engine.jobs.fail(now, row.id, request.timeout, due, priority)
        return Reply(request.identifier, 0, now)

    def next(self, request: Request, peer: Waiting, now: int) -> Reply:
        _, identifier, flags, _, timeout, count, key, _, _, _ = request
        engine = self._engine
        until = moment(timeout) or now + engine.lease_us
        if until <= now:
            raise BadRequest("a lease must end in time to come")
        domain = _domain(key)
        wanted = _new(Wanted, (domain, until, flags & OVERWRITE != 0, engine.settings.fair))
        found: Iterable[tuple[JobRow, bytes]]
        if flags & QUERY == RANGE:
            found = islice(engine.jobs.take_many(now, wanted), count or 0xFFFF)
        else:
            one = engine.jobs.take(now, wanted)
            found = () if one is None else (one,)
        pairs: list[Pair] = []
        size = 0
        for row, value in found:
            resource = row.resource
            pairs.append(_new(Pair, (resource, row.type, value if flags & DATA else b"")))
            size += len(resource) + len(value)
            if size >= REPLY_BYTES:
                break
        self.produced += size
        if pairs:
            return _new(Reply, (identifier, 0, now, until, b"", pairs, None))
        if flags & LISTEN:
            peer.wait_for_job(key)
        return Reply(identifier, 0, now, engine.jobs.next_time(domain), b"nothing to work on")

    def get(self, request: Request, now: int) -> Reply:
        jobs = self._engine.state.jobs
        row = jobs.pending.get(request.key) or jobs.worked_on.get(request.key)
        if row is None:
            raise NoSuchKey("there is neither a value nor a job")
        busy = BUSY if request.key in jobs.worked_on else 0
        if request.timeout is not None:
            raise BadRequest("jobs are leased by NEXT, not by GET")
        if busy and request.flags & WORKED_ON:
            raise NoSuchKey("it is worked on")
        value = self._engine.read(row) if request.flags & DATA else b""
        self.produced += len(value)
        return Reply(request.identifier, busy, row.stamp, None, b"", [Pair(request.key, row.type, value)])


def lost(resource: bytes) -> LeaseLost:
    return LeaseLost(f"{resource.decode(errors='replace')!r} is not leased any more")


def _refuse(resource: bytes, data: bytes, most: int) -> None:
    check_key(resource)
    checks.size(data, most)


@lru_cache(1024)
def _domain(key: bytes) -> str | None:
    return checks.domain(checks.text(key)) or None


@lru_cache(1024)
def _place(key: bytes) -> tuple[str, int | None, int | None]:
    """Domain, priority and due time; None for what is left out. Most jobs have one of few."""
    parts = key.rsplit(b":", 2)
    if len(parts) != 3:
        raise BadRequest("a job is set under <domain>:<priority>:<due> and its resource")
    priority, due = number(parts[1], 255, "priority"), number(parts[2], TIME_MAX_US, "due time")
    return checks.domain(checks.text(parts[0])), priority, due
