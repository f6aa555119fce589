"""The jobs of a journal over HTTP.

POST  /journals/{name}/put         {"resource": "https://…", "priority": 10, "after": "10s", "value": "…"}
POST  /journals/{name}/put_batch   jobs as an Arrow IPC stream (`journal.job_columns`)
                                   ?after=10s&writer=…&sequence=5
POST  /journals/{name}/next        {"domain": "example.com", "lease": "2h", "wait": "10s"}
POST  /journals/{name}/next_batch  {"count": 100}, answered as an Arrow IPC stream
POST  /journals/{name}/done        {"id": 5}; done_batch, fail, extend, cancel, redrive, redrive_as
GET   /journals/{name}/jobs        all jobs, as JSON lines; the last line is {"end": true}
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from itertools import islice

import msgspec
import pyarrow as pa
from aiohttp import web

from headrace.journal import requests as ask
from headrace.journal.errors import BadRequest
from headrace.journal.job import Job, Nothing
from headrace.journal.job_columns import batch_of
from headrace.journal.journal import JobInfo, Journal
from headrace.journal.spelling import SpelledInfo, SpelledJob, read, read_text
from headrace.kernel.durations import microseconds
from headrace.kernel.errors import HeadraceError
from headrace.server.http_errors import answer
from headrace.server.http_publish import published_table
from headrace.server.journal_verbs import VerbRoutes, asked, journal_of, path_of, verb
from headrace.server.node import Node
from headrace.wire.http_words import ARROW, JSON_LINES

WAIT_US_MAX = 60_000_000
_PIECE_US = 500_000
_LINES = 500


def _put(journal: Journal, wanted: ask.Put) -> object:
    if wanted.after is not None and wanted.due_us is not None:
        raise BadRequest("give either `after` or `due_us`, not both")
    id_ = journal.put(
        read_text(wanted.resource),
        priority=wanted.priority,
        after=wanted.after,
        due_us=wanted.due_us,
        value=read(wanted.value),
        domain=wanted.domain,
        ttl=wanted.ttl,
        persist=wanted.persist,
    )
    return {"id": id_}


def _done(journal: Journal, wanted: ask.Done) -> object:
    journal.done(wanted.id, wanted.lease_until_us)
    return {"id": wanted.id}


def _done_batch(journal: Journal, wanted: ask.DoneBatch) -> object:
    until = wanted.lease_until_us
    if until is None:
        return {"lost": journal.done_batch(wanted.ids)}
    ends = until if isinstance(until, list) else [until] * len(wanted.ids)
    if len(ends) != len(wanted.ids):
        raise BadRequest(f"{len(wanted.ids)} jobs, but {len(ends)} ends of leases")
    jobs = [Job(id_, "", "", 0, 0, None, 0, end, journal) for id_, end in zip(wanted.ids, ends, strict=True)]
    return {"lost": journal.done_batch(jobs)}


def _fail(journal: Journal, wanted: ask.Fail) -> object:
    journal.fail(wanted.id, wanted.retry_in, wanted.lease_until_us)
    return {"id": wanted.id}


def _extend(journal: Journal, wanted: ask.Extend) -> object:
    if wanted.lease_until_us is None:
        journal.extend(wanted.id, wanted.lease)
        return {"id": wanted.id, "lease_until_us": None}
    job = Job(wanted.id, "", "", 0, 0, None, 0, wanted.lease_until_us, journal)
    job.extend(wanted.lease)
    return {"id": wanted.id, "lease_until_us": job.lease_until_us}


def _cancel(journal: Journal, wanted: ask.Cancel) -> object:
    journal.cancel(read_text(wanted.resource))
    return {}


def _redrive(journal: Journal, wanted: ask.Redrive) -> object:
    chosen = None if wanted.resources is None else [read_text(name) for name in wanted.resources]
    return {"count": journal.redrive(chosen)}


def _redrive_as(journal: Journal, wanted: ask.RedriveAs) -> object:
    jobs = [
        (id_, None if name is None else read_text(name), read(value), rank)
        for id_, name, value, rank in wanted.jobs
    ]
    return {"count": journal.redrive_as(jobs)}


VERBS = (
    verb(ask.Put, _put, 201),
    verb(ask.Done, _done),
    verb(ask.DoneBatch, _done_batch),
    verb(ask.Fail, _fail),
    verb(ask.Extend, _extend),
    verb(ask.Cancel, _cancel),
    verb(ask.Redrive, _redrive),
    verb(ask.RedriveAs, _redrive_as),
)


class JobRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [
            *VerbRoutes(self._node, VERBS).routes(),
            web.post("/journals/{name}/put_batch", self.put_batch),
            web.post(path_of(ask.Next), self.next),
            web.post(path_of(ask.NextBatch), self.next_batch),
            web.get("/journals/{name}/jobs", self.jobs, allow_head=False),
        ]

    async def put_batch(self, request: web.Request) -> web.Response:
        journal, raw = await journal_of(self._node, request), await request.read()
        once, after = _once(request), request.query.get("after")

        def work() -> list[int]:
            return journal.put_batch(
                **batch_of(published_table(raw, self._node.limits)), after=after, once=once
            )

        return answer({"ids": await self._node.in_pool(work)}, 201)

    async def next(self, request: web.Request) -> web.Response:
        wanted, journal = await asked(request, ask.Next), await journal_of(self._node, request)
        if wanted.wait is not None and microseconds(wanted.wait) > WAIT_US_MAX:
            raise BadRequest(f"wait up to {WAIT_US_MAX // 1_000_000}s in one request, not {wanted.wait}")
        gone = threading.Event()
        try:
            found = await self._node.in_waiting_pool(
                partial(self._wait, journal, wanted, gone), partial(_give_back, journal)
            )
        finally:
            gone.set()
        if not isinstance(found, Job):
            return answer({"job": None, "next_at_us": found.next_at_us})
        return answer({"job": SpelledJob.of(found), "next_at_us": None})

    def _wait(self, journal: Journal, wanted: ask.Next, gone: threading.Event) -> Job | Nothing:
        """In pieces, so that a node that stops does not wait for those who wait, nor for those who left."""
        left_us = 0 if wanted.wait is None else microseconds(wanted.wait)
        while True:
            piece = min(left_us, _PIECE_US)
            wait, delete = piece / 1_000_000 or None, wanted.delete
            found = journal.next(
                wanted.domain, lease=wanted.lease, wait=wait, delete=delete, fair=wanted.fair
            )
            left_us -= piece
            if isinstance(found, Job) or left_us <= 0 or self._node.stopping or gone.is_set():
                return found

    async def next_batch(self, request: web.Request) -> web.Response:
        wanted, journal = await asked(request, ask.NextBatch), await journal_of(self._node, request)

        def work() -> bytes:
            table = journal.next_batch(
                wanted.count, wanted.domain, lease=wanted.lease, delete=wanted.delete, fair=wanted.fair
            )
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            written: bytes = sink.getvalue().to_pybytes()
            return written

        return web.Response(body=await self._node.in_pool(work), content_type=ARROW)

    async def jobs(self, request: web.Request) -> web.StreamResponse:
        journal = await journal_of(self._node, request)
        jobs = journal.jobs()
        lines = await self._node.in_pool(_lines, jobs)  # an error in it has a status of its own
        response = web.StreamResponse(headers={"Content-Type": JSON_LINES})
        await response.prepare(request)
        try:
            while lines:
                await response.write(lines)
                lines = await self._node.in_pool(_lines, jobs)
            await response.write(b'{"end":true}\n')
            await response.write_eof()
        except (ConnectionError, HeadraceError):  # whoever asked has gone, or the journal: no last line
            if request.transport is not None:
                request.transport.abort()
        return response


def _lines(jobs: Iterator[JobInfo]) -> bytes:
    return b"".join(msgspec.json.encode(SpelledInfo.of(info)) + b"\n" for info in islice(jobs, _LINES))


def _once(request: web.Request) -> tuple[str, int] | None:
    """What makes a batch safe to repeat: who puts it, and a number that grows."""
    writer, sequence = request.query.get("writer"), request.query.get("sequence")
    if writer is None and sequence is None:
        return None
    if writer is None or sequence is None:
        raise BadRequest("writer and sequence go together: give both, or none")
    try:
        return writer, int(sequence)
    except ValueError:
        raise BadRequest(f"sequence is a number, not {sequence[:40]!r}") from None


def _give_back(journal: Journal, found: Job | Nothing) -> None:
    """Whoever asked for a job has gone: it is for somebody else, and has not failed."""
    if isinstance(found, Job) and (until := found.lease_until_us):
        with contextlib.suppress(HeadraceError):
            journal.engine.do(lambda now: journal.engine.jobs.untake(now, found.id, until))
            journal.engine.wake_waiting()
