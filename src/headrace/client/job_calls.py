"""Jobs as FJ requests: put, take, give back.

A job is SET with two keys: where it stands in the journal (`<domain>:<priority>:<due>`), and its resource.
In what is given back, empty parts keep what the job has: a client does not know its priority.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import lru_cache, partial
from typing import Any, NoReturn

from headrace.client.answers import NO_JOB, carried_out, failure, named, pairs_of, raw, text
from headrace.client.calls import Call, Pause, Words, persisted
from headrace.journal.errors import BadRequest, LeaseLost
from headrace.journal.job import Data, Desk, Job, Nothing
from headrace.journal.job_operations import domain_of
from headrace.journal.value import Type, decode, encode
from headrace.kernel.durations import Duration, microseconds
from headrace.kernel.errors import HeadraceError
from headrace.wire.fj import (
    DATA,
    LISTEN,
    OVERWRITE,
    PERSIST,
    RANGE,
    SIZE_MAX,
    UPDATE_TIMEOUT,
    WORKED_ON,
    Function,
    Reply,
    Request,
)
from headrace.wire.fj_many import pack_jobs, pack_keys

_SET, _NEXT, _DELETE = int(Function.SET), int(Function.NEXT), int(Function.DELETE)
_PUT = PERSIST | RANGE
_VOID = encode(None)
_PAUSE_US = 50_000
"""So long somebody who waits for a push waits at least."""
_new = tuple.__new__
_WORKED_ON = PERSIST | RANGE | WORKED_ON


class JobWords(Words):
    def put(
        self,
        resource: str,
        *,
        domain: str | None = None,
        priority: int = 128,
        after: Duration | None = None,
        due_us: int | None = None,
        value: Data = None,
        ttl: Duration | None = None,
        persist: bool = True,
    ) -> Call[None]:
        """Work on the resource: now, `after` a while, or at `due_us`. A pending job of it is updated."""
        if after is None and due_us is None:
            place = _lane(domain, priority)
        else:
            place = self._place(domain, priority, after, due_us)
        kind, data = (None, None) if value is None else encode(value)
        flags, name = _PUT if persist else RANGE, named(resource)
        timeout = None if ttl is None else self.moment(ttl)
        fields = (_SET, 0, flags, self.now_us(), timeout, 0, place, name, kind, data)
        return _new(Call, (_new(Request, fields), partial(carried_out, name)))

    def put_batch(
        self,
        resources: Iterable[str],
        *,
        domain: str | None = None,
        priority: int = 128,
        after: Duration | None = None,
        values: Iterable[Data] | None = None,
        persist: bool = True,
    ) -> Call[None]:
        """Work on all these resources, in one request: all of it happens, or nothing."""
        names = [named(resource) for resource in resources]
        coded = [_VOID] * len(names) if values is None else [encode(value) for value in values]
        if len(coded) != len(names):
            raise BadRequest(f"{len(names)} resources, but {len(coded)} values")
        packed = pack_jobs([(name, kind, data) for name, (kind, data) in zip(names, coded, strict=True)])
        place = self._place(domain, priority, after, None)
        flags, now = persisted(persist) | RANGE, self.now_us()
        request = Request(Function.SET, 0, flags, now, None, 0, place, b"", Type.BUFFER, packed)
        return Call(request, partial(carried_out, place))

    def next(
        self,
        domain: str = "",
        *,
        lease: Duration | None = None,
        delete: bool = False,
        listen: bool = False,
        persist: bool = False,
    ) -> Call[Job | Nothing]:
        """The job that is to be worked on next, of a domain or of any.

        That it is taken survives the server's own crash; with `persist` that of its machine, too.
        """
        flags = DATA
        if delete or listen or persist:
            flags |= persisted(persist) | (OVERWRITE if delete else 0) | (LISTEN if listen else 0)
        until = None if lease is None else self.moment(lease)
        fields = (_NEXT, 0, flags, self.now_us(), until, None, raw(domain), None, None, None)
        return _new(Call, (_new(Request, fields), partial(self._first, domain, delete)))

    def next_batch(
        self, count: int, domain: str = "", *, lease: Duration | None = None, delete: bool = False
    ) -> Call[list[Job]]:
        """Up to `count` jobs under one lease; an empty list if there is none."""
        if not 0 < count <= SIZE_MAX:
            raise BadRequest(f"a batch has 1 to {SIZE_MAX} jobs, not {count}")
        flags = DATA | RANGE | (OVERWRITE if delete else 0)
        timeout = self.moment(lease)
        request = Request(Function.NEXT, 0, flags, self.now_us(), timeout, count, raw(domain), b"")
        return Call(request, partial(self._jobs, domain, delete))

    def done(self, job: Job | str) -> Call[None]:
        """The work is done; LeaseLost if the job was not ours any more.

        With a resource instead of a job, whoever holds the lease; if nobody does, the pending job goes.
        """
        if isinstance(job, Job):
            name, proof = raw(_leased(job).resource), job.lease_until_us or None
        else:
            name, proof = raw(job), None
        fields = (_DELETE, 0, PERSIST, self.now_us(), proof, None, name, None, None, None)
        return _new(Call, (_new(Request, fields), partial(carried_out, name)))

    def done_batch(self, jobs: Iterable[Job]) -> list[Call[list[Job]]]:
        """These jobs are done: a request for each lease. They answer those whose lease was lost."""
        by_lease: dict[int, list[Job]] = {}
        for job in jobs:
            by_lease.setdefault(_leased(job).lease_until_us, []).append(job)
        return [self._done_together(lease, together) for lease, together in by_lease.items()]

    def _done_together(self, lease: int, jobs: list[Job]) -> Call[list[Job]]:
        packed = pack_keys(raw(job.resource) for job in jobs)

        def lost(reply: Reply) -> list[Job]:
            if reply.error:
                raise failure(reply.error)
            gone = {text(pair.key) for pair in pairs_of(reply)}
            return [job for job in jobs if job.resource in gone]

        request = Request(Function.DELETE, 0, PERSIST, self.now_us(), lease, type=Type.BUFFER, value=packed)
        return Call(request, lost)

    def fail(self, job: Job, retry_in: Duration | None = None) -> Call[None]:
        """Give the job back; it is due again after `retry_in`, or after a time that grows by attempts."""
        due = self.moment(retry_in)
        place = b"::" if due is None else b"::%d" % due
        return Call(self._about(job, _WORKED_ON, place), partial(carried_out, raw(job.resource)))

    def extend(self, job: Job, lease: Duration) -> Call[None]:
        """Keep the job for `lease` from now on."""
        until_us = self._clock.now_us() + microseconds(lease)

        def kept(reply: Reply) -> None:
            carried_out(raw(job.resource), reply)
            job.lease_until_us = until_us

        return Call(self._about(job, _WORKED_ON | UPDATE_TIMEOUT, b"::%d" % until_us), kept)

    def wait_for_job(
        self, domain: str, wait: Duration, *, lease: Duration | None, delete: bool
    ) -> Generator[Call[Job | Nothing] | Pause, Any, Job | Nothing]:
        """Ask; if there is nothing, ask again when the server pushes or the next job is due."""
        end_us = self._clock.now_us() + microseconds(wait)
        while True:
            found: Job | Nothing = yield self.next(domain, lease=lease, delete=delete, listen=True)
            if not isinstance(found, Nothing) or self._clock.now_us() >= end_us:
                return found
            until_us = end_us if found.next_at_us is None else min(end_us, found.next_at_us)
            # The server pushes when it is time. Our clock may say so long before, again and again.
            yield Pause(raw(domain), max(until_us, self._clock.now_us() + _PAUSE_US))

    def _place(self, domain: str | None, priority: int, after: Duration | None, due_us: int | None) -> bytes:
        """Where a job stands in the journal."""
        lane = _lane(domain, priority)
        if after is None and due_us is None:
            return lane
        if after is not None and due_us is not None:
            raise BadRequest("give either `after` or `due_us`, not both")
        if after is not None:
            due_us = self.moment(after)
        if due_us is not None and due_us < 0:
            raise BadRequest(f"a due time is microseconds since 1970, not {due_us}")
        return raw(b"%b%d" % (lane[:-1], due_us or 0))

    def _about(self, job: Job, flags: int, place: bytes) -> Request:
        """A request about a leased job; the end of its lease is the proof that it is ours."""
        proof = _leased(job).lease_until_us or None
        return Request(Function.SET, 0, flags, self.now_us(), proof, 0, place, raw(job.resource))

    def _first(self, domain: str, delete: bool, reply: Reply) -> Job | Nothing:
        if reply.error == NO_JOB:
            return Nothing(reply.timeout)
        jobs = self._jobs(domain, delete, reply)
        return jobs[0] if jobs else Nothing()

    def _jobs(self, domain: str, delete: bool, reply: Reply) -> list[Job]:
        if reply.error:
            if reply.error == NO_JOB:
                return []
            raise failure(reply.error)
        lease_us, desk = reply.timeout or 0, self._desk or ASYNC_DESK
        if delete:
            lease_us, desk = 0, TAKEN_DESK
        jobs = []
        for key, kind, value in pairs_of(reply):
            resource = key.decode("utf-8", "surrogateescape")
            data = decode(kind or 0, value or b"")
            whose = domain or domain_of(resource)
            jobs.append(Job(0, resource, whose, 128, 0, data, 0, lease_us, desk))
        return jobs


@lru_cache(1024, typed=True)
def _lane(domain: str | None, priority: int) -> bytes:
    """Where a job that is due at once stands: most stand in one of few places."""
    if not 0 <= priority <= 255:
        raise BadRequest(f"a priority is 0 to 255, the smallest first, not {priority}")
    return raw(f"{domain or ''}:{priority}:0")


class _NoDesk:
    """Jobs that cannot be given back by their own verbs, and why."""

    def __init__(self, error: type[HeadraceError], why: str) -> None:
        self._error, self._why = error, why

    def done(self, job: Job) -> NoReturn:
        raise self._error(self._why)

    def fail(self, job: Job, retry_in: Duration | None = None) -> NoReturn:
        raise self._error(self._why)

    def extend(self, job: Job, lease: Duration) -> NoReturn:
        raise self._error(self._why)


ASYNC_DESK: Desk = _NoDesk(
    BadRequest, "this job came from an async client: write `await client.done(job)` and so on instead"
)
TAKEN_DESK: Desk = _NoDesk(LeaseLost, "this job was taken for good: there is nothing to give back")


def _leased(job: Job) -> Job:
    """The job. Without its lease a request would hit whatever job the resource has now."""
    if job._desk is TAKEN_DESK:
        job.done()
    return job
