"""The verbs of a journal on a node that are about jobs, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
import pyarrow as pa

from headrace.client.errors import ConnectionLost
from headrace.client.journal_line import JournalLine, lines_of
from headrace.client.packing import packed
from headrace.journal import checks
from headrace.journal import requests as ask
from headrace.journal.job import Data, Desk, Job, Nothing
from headrace.journal.job_columns import job_columns
from headrace.journal.job_verbs import DEFAULT_PRIORITY, held
from headrace.journal.journal import JobInfo
from headrace.journal.leases import Finished, leases_of
from headrace.journal.spelling import SpelledInfo, SpelledJob, spell, spell_text
from headrace.kernel.durations import Duration, microseconds
from headrace.wire.http_words import ARROW

WAIT_S_MAX = 60.0
"""How long a node lets one request wait."""
_LINES = 500


class _Found(msgspec.Struct):
    job: SpelledJob | None
    next_at_us: int | None


class AsyncJobVerbs:
    _line: JournalLine
    _desk: Desk

    async def put(
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
        """Ask for work on a resource; the job's id. It is on the node's disk when this returns."""
        wanted = ask.Put(
            _resource(resource),
            priority,
            span(after) if due_us is None else None,
            due_us,
            spell(value),
            None if domain is None else checks.domain(domain),
            span(ttl),
            persist,
        )
        told = await self._line.ask(wanted, dict[str, int], again=True)
        return told["id"]

    async def put_batch(
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
        """Ask for work on many resources at once; their jobs' ids.

        With `once` = (writer, sequence) it is safe to repeat, and is repeated if no answer came: [] is the
        answer if the node had put them already.
        """
        body = packed(job_columns(resources, priority, due_us, values, domain))
        query: dict[str, Any] = {} if after is None else {"after": f"{span(after):f}s"}
        if once is not None:
            query["writer"], query["sequence"] = checks.once(once)
        verb = f"put_batch?{urlencode(query)}"
        raw = await self._line.send("POST", verb, body, media=ARROW, again=once is not None)
        return msgspec.json.decode(raw, type=dict[str, list[int]])["ids"]

    async def next(
        self,
        domain: str | None = None,
        *,
        lease: Duration | None = None,
        wait: Duration | None = None,
        delete: bool = False,
        fair: bool | None = None,
    ) -> Job | Nothing:
        """The next job that is due, leased to the caller; of that domain, or of any.

        With `wait`, waits that long until there is one. If the connection breaks meanwhile, that is raised:
        a job may have been leased, and nobody knows which; it comes again when its lease ends.
        """
        name, length = None if domain is None else checks.domain(domain), span(lease)
        loop = asyncio.get_running_loop()
        end = None if wait is None else loop.time() + microseconds(wait) / 1_000_000
        most = min(WAIT_S_MAX, self._line.node.patience.answer_s / 2)
        while True:
            piece = None if end is None else max(0.0, min(end - loop.time(), most))
            found = await self._line.ask(ask.Next(name, length, piece, delete, fair), _Found)
            if found.job is not None:
                return found.job.job(self._desk)
            if end is None or loop.time() >= end:
                return Nothing(found.next_at_us)

    async def next_batch(
        self,
        count: int,
        domain: str | None = None,
        *,
        lease: Duration | None = None,
        delete: bool = False,
        fair: bool | None = None,
    ) -> pa.Table:
        """Up to `count` jobs that are due, all leased, as one Arrow table (see JOB_TABLE)."""
        name = None if domain is None else checks.domain(domain)
        wanted = ask.NextBatch(checks.count(count, "how many"), name, span(lease), delete, fair)
        body = msgspec.json.encode(wanted)
        raw = await self._line.send("POST", wanted.verb, body, again=False)
        return pa.ipc.open_stream(raw).read_all()

    async def done(self, job: Job | int, lease_until_us: int | None = None) -> None:
        """The work is done; the job is gone. LeaseLost if it was not ours any more.

        With an id instead of a job, whoever holds the lease, or only the one that ends at `lease_until_us`.
        """
        id_, until = held(job, lease_until_us)
        await self._line.ask(ask.Done(id_, until), dict[str, int], again=until is not None)

    async def done_batch(self, jobs: Finished) -> list[int]:
        """These jobs are done; the ids of those whose lease was lost.

        The table that `next_batch` answered, or a part of it, proves that they are the caller's. Ids alone
        finish jobs whoever holds their leases.
        """
        ids, until = leases_of(jobs)
        proof = until[0] if until and until.count(until[0]) == len(until) else until
        told = await self._line.ask(ask.DoneBatch(ids, proof), dict[str, list[int]])
        return told["lost"]

    async def fail(
        self, job: Job | int, retry_in: Duration | None = None, lease_until_us: int | None = None
    ) -> None:
        """The work failed; the job is due again after `retry_in`, or a time that grows with its attempts."""
        id_, until = held(job, lease_until_us)
        await self._line.ask(ask.Fail(id_, until, span(retry_in)), dict[str, int], again=until is not None)

    async def extend(self, job: Job | int, lease: Duration) -> None:
        """Keep the job for `lease` from now on."""
        id_, until = held(job)
        wanted = ask.Extend(id_, microseconds(lease) / 1_000_000, until)
        told = await self._line.ask(wanted, dict[str, int | None], again=until is not None)
        new_until = told["lease_until_us"]
        if isinstance(job, Job) and new_until is not None:
            job.lease_until_us = new_until

    async def cancel(self, resource: str) -> None:
        """Forget the pending job of a resource."""
        await self._line.ask(ask.Cancel(_resource(resource)), dict[str, int])

    async def redrive(self, resources: Sequence[str] | None = None) -> int:
        """Dead jobs, all or those of some resources, are pending again; how many."""
        names = None if resources is None else checks.texts(resources, "resources")
        chosen = None if names is None else [_resource(name) for name in names]
        return (await self._line.ask(ask.Redrive(chosen), dict[str, int]))["count"]

    async def redrive_as(self, repaired: Iterable[tuple[int, str | None, Data, int]]) -> int:
        """Put dead jobs back as (id, resource, value, priority) say, all or none of them; how many.

        Without a resource (None) a job keeps its own, and its domain.
        """
        jobs = [
            (id_, None if name is None else _resource(name), spell(value), checks.priority(rank))
            for id_, name, value, rank in repaired
        ]
        return (await self._line.ask(ask.RedriveAs(jobs), dict[str, int]))["count"]

    async def jobs(self) -> AsyncIterator[JobInfo]:
        """All jobs: pending, leased and dead ones."""
        async for page in self.job_pages():
            for info in page:
                yield info

    async def job_pages(self) -> AsyncIterator[list[JobInfo]]:
        """The same, many at a time."""
        async with self._line.reading("jobs") as response:
            page: list[JobInfo] = []
            async for line in lines_of(response):
                if line == b'{"end":true}':
                    yield page
                    return
                page.append(msgspec.json.decode(line, type=SpelledInfo).info())
                if len(page) >= _LINES:
                    yield page
                    page = []
        raise ConnectionLost(f"the list of jobs of {self._line.name!r} broke off: ask again")


def span(duration: Duration | None) -> float | None:
    """In seconds; BadDuration if it is none."""
    return None if duration is None else microseconds(duration) / 1_000_000


def _resource(resource: str) -> Any:
    checks.resource_bytes(resource)
    return spell_text(resource)
