"""What the functions of FJ that are about jobs do to a journal."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

from headrace.journal import checks
from headrace.journal.batch_verbs import same
from headrace.journal.checks import TIME_MAX_US
from headrace.journal.engine import Engine
from headrace.journal.errors import BadRequest, LeaseLost, NoSuchKey
from headrace.journal.events import EVENT_BYTES
from headrace.journal.job_operations import Wanted, domain_of
from headrace.journal.new_jobs import NewJobs
from headrace.journal.rows import JobRow
from headrace.server.fj_fields import REPLY_BYTES, TYPE_MAX, check_key, check_type, moment, number, second_key
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
_SHORT = 256
"""Longer places and domains are not remembered."""
Place = tuple[str, int | None, int | None]
"""Domain, priority and due time."""


class Waiting(Protocol):
    """Who asks, and may want to be told when there is a job."""

    def wait_for_job(self, domain: bytes) -> None: ...


class JobFunctions:
    def __init__(self, engine: Engine) -> None:
        self.produced = 0
        """Bytes of resources and values in replies."""
        self.moved = False
        """Whether some job may be due, or its resource free, since somebody looked here."""
        self._engine = engine
        self._most = engine.value_bytes

    def put(self, request: Request, now: int) -> Reply:
        """SET with two keys: `<domain>:<priority>:<due>` and the resource."""
        _, identifier, flags, timestamp, timeout, _, key, upper, kind, value = request
        common, priority, due = _place(key) if len(key) <= _SHORT else _place.__wrapped__(key)
        self.moved = True
        if flags & WORKED_ON:
            return self._give_back(request, now, (common, priority, due))
        if priority is None:
            raise BadRequest("a job needs a priority from 0 to 255")
        stamp, expires = moment(timestamp) or now, None if timeout is None else moment(timeout)
        persist, most, due, put = flags & PERSIST != 0, self._most, due or now, self._engine.jobs.put
        if upper or not value:
            resource, data = upper or second_key(request), value or b""
            kind = kind or 0
            if resource[0] == 0 or len(data) > most or kind > TYPE_MAX:
                _refuse(resource, kind, data, most)
            domain = common or domain_of(checks.text(resource))
            put(now, (resource, domain, priority, due, kind, data, stamp, expires, persist))
            return _new(Reply, (identifier, 0, now, None, b"", None, None))
        jobs = unpack_jobs(value)
        for resource, type_, data in jobs:
            if not resource or resource[0] == 0 or len(data) > most or type_ > TYPE_MAX:
                _refuse(resource, type_, data, most)
        self._engine.check_size(len(value) + EVENT_BYTES * len(jobs))
        self._engine.admit(len(value) + 2 * EVENT_BYTES * len(jobs))
        if not persist:
            self._engine.jobs.check_memory(now, [(resource, len(data)) for resource, _, data in jobs])
        if not persist or expires is not None:
            for resource, type_, data in jobs:
                domain = common or domain_of(checks.text(resource))
                put(now, (resource, domain, priority, due, type_, data, stamp, expires, persist))
        elif jobs:
            resources, types, values = map(list, zip(*jobs, strict=True))
            domains = common or [domain_of(checks.text(resource)) for resource in resources]
            many = NewJobs(resources, same(domains), priority, due, same(types), same(values), stamp)
            self._engine.jobs.put_many(now, many)
        return _new(Reply, (identifier, 0, now, None, b"", None, None))

    def done_many(self, request: Request, now: int) -> Reply:
        """DELETE without a key: the jobs of many resources, all under one lease, are done."""
        if request.timeout is None:
            raise BadRequest("the end of the lease is needed, as NEXT told it")
        jobs, worked_on = self._engine.jobs, self._engine.state.jobs.worked_on
        jobs.tick(now)
        self.moved = True
        gone: list[Pair] = []
        ids: dict[int, None] = {}
        for resource in unpack_keys(request.value or b""):
            row = worked_on.get(resource)
            if row is None or row.lease != request.timeout or row.id in ids:
                gone.append(Pair(resource))
            else:
                ids[row.id] = None
        self._engine.admit(len(request.value or b"") + 2 * EVENT_BYTES * len(ids))
        jobs.done_many(now, ids)
        return Reply(request.identifier, 0, now, None, b"", gone)

    def _give_back(self, request: Request, now: int, place: Place) -> Reply:
        resource, (domain, priority, due) = request.upper or b"", place
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
            due = now if due == 0 else due
            self._engine.jobs.fail(now, row.id, request.timeout, due, priority, domain or None)
        return Reply(request.identifier, 0, now)

    def next(self, request: Request, peer: Waiting, now: int) -> Reply:
        _, identifier, flags, _, timeout, count, key, _, _, _ = request
        engine = self._engine
        until = moment(timeout) or now + engine.lease_us
        if until <= now:
            raise BadRequest("a lease must end in time to come")
        domain = _domain(key) if len(key) <= _SHORT else _domain.__wrapped__(key)
        wanted = _new(Wanted, (domain, until, flags & OVERWRITE != 0, engine.settings.fair))
        found: Iterable[tuple[JobRow, bytes]]
        if flags & QUERY == RANGE:
            engine.admit(3 * EVENT_BYTES * min(count or 0xFFFF, len(engine.state.jobs.pending)))
            found = engine.jobs.take_many(now, wanted, count or 0xFFFF, REPLY_BYTES)
        else:
            one = engine.jobs.take(now, wanted)
            found = () if one is None else (one,)
        pairs: list[Pair] = []
        size = 0
        for row, value in found:
            resource = row.resource
            pairs.append(_new(Pair, (resource, row.type, value if flags & DATA else b"")))
            size += len(resource) + len(value)
        self.produced += size
        if pairs:
            return _new(Reply, (identifier, 0, now, until, b"", pairs, None))
        if flags & LISTEN:
            peer.wait_for_job(key)
        return Reply(identifier, 0, now, engine.jobs.next_time(domain), b"nothing to work on")

    def get(self, request: Request, now: int) -> Reply:
        self._engine.jobs.tick(now)
        jobs = self._engine.state.jobs
        row = jobs.pending.get(request.key) or jobs.worked_on.get(request.key)
        if row is None:
            if request.key:
                check_key(request.key)
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


def _refuse(resource: bytes, kind: int, data: bytes, most: int) -> None:
    check_key(resource)
    check_type(kind)
    checks.size(data, most)


@lru_cache(1024)
def _domain(key: bytes) -> str | None:
    return checks.domain(checks.text(key)) or None


@lru_cache(1024)
def _place(key: bytes) -> Place:
    """Domain, priority and due time; None for what is left out. Most jobs have one of few."""
    parts = key.rsplit(b":", 2)
    if len(parts) != 3:
        raise BadRequest("a job is set under <domain>:<priority>:<due> and its resource")
    priority, due = number(parts[1], 255, "priority"), number(parts[2], TIME_MAX_US, "due time")
    return checks.domain(checks.text(parts[0])), priority, due
