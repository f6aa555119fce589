"""Journals over HTTP: put, next, done, fail, stats. The FJ protocol is quicker; this one every tool speaks.

PUT   /journals/{name}           make sure that it is there
POST  /journals/{name}/put       {"resource": "https://…", "priority": 10, "after": "10s", "value": "…"}
POST  /journals/{name}/next      {"domain": "example.com", "lease": "2h", "wait": "10s"}
POST  /journals/{name}/done      {"id": 5}
POST  /journals/{name}/fail      {"id": 5, "retry_in": "1m"}
GET   /journals/{name}/stats
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import threading
from functools import partial
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from headrace.journal.errors import BadRequest
from headrace.journal.job import Data, Job, Nothing
from headrace.journal.journal import Journal
from headrace.kernel.durations import microseconds
from headrace.kernel.errors import HeadraceError
from headrace.server.http_errors import answer
from headrace.server.node import Node
from headrace.wire.json_rows import show_bytes

WAIT_US_MAX = 60_000_000
_PIECE_US = 500_000
T = TypeVar("T")


class _Put(msgspec.Struct, forbid_unknown_fields=True):
    resource: str
    priority: int = 128
    after: float | str | None = None
    due_us: int | None = None
    value: Any = None
    domain: str | None = None
    ttl: float | str | None = None


class _Next(msgspec.Struct, forbid_unknown_fields=True):
    domain: str | None = None
    lease: float | str | None = None
    wait: float | str | None = None
    delete: bool = False


class _Done(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    lease_until_us: int | None = None
    """As `next` answered it: the proof that the job is still the caller's."""


class _Fail(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    lease_until_us: int | None = None
    retry_in: float | str | None = None


class JournalRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/journals", self.names),
            web.put("/journals/{name}", self.ensure),
            web.post("/journals/{name}/put", self.put),
            web.post("/journals/{name}/next", self.next),
            web.post("/journals/{name}/done", self.done),
            web.post("/journals/{name}/fail", self.fail),
            web.get("/journals/{name}/stats", self.stats),
        ]

    async def names(self, request: web.Request) -> web.Response:
        return answer({"journals": await self._node.in_pool(self._node.store.journals)})

    async def ensure(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        created = await self._node.ensure_journal(name)
        return answer({"name": name, "created": created}, 201 if created else 200)

    async def put(self, request: web.Request) -> web.Response:
        wanted, journal = await _body(request, _Put), await self._node.journal(request.match_info["name"])
        if wanted.after is not None and wanted.due_us is not None:
            raise BadRequest("give either `after` or `due_us`, not both")
        id_ = await self._node.in_pool(
            lambda: journal.put(
                wanted.resource,
                priority=wanted.priority,
                after=wanted.after,
                due_us=wanted.due_us,
                value=_value(wanted.value),
                domain=wanted.domain,
                ttl=wanted.ttl,
            )
        )
        return answer({"id": id_}, 201)

    async def next(self, request: web.Request) -> web.Response:
        wanted, journal = await _body(request, _Next), await self._node.journal(request.match_info["name"])
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
        shown = {
            "id": found.id,
            "resource": _shown(found.resource),
            "domain": found.domain,
            "priority": found.priority,
            "due_us": found.due_us,
            "attempts": found.attempts,
            "lease_until_us": found.lease_until_us,
            "value": _shown(found.value),
        }
        return answer({"job": shown, "next_at_us": None})

    def _wait(self, journal: Journal, wanted: _Next, gone: threading.Event) -> Job | Nothing:
        """In pieces, so that a node that stops does not wait for those who wait, nor for those who left."""
        left_us = 0 if wanted.wait is None else microseconds(wanted.wait)
        while True:
            piece = min(left_us, _PIECE_US)
            found = journal.next(
                wanted.domain, lease=wanted.lease, wait=piece / 1_000_000 or None, delete=wanted.delete
            )
            left_us -= piece
            if isinstance(found, Job) or left_us <= 0 or self._node.stopping or gone.is_set():
                return found

    async def done(self, request: web.Request) -> web.Response:
        wanted, journal = await _body(request, _Done), await self._node.journal(request.match_info["name"])
        await self._node.in_pool(journal.done, wanted.id, wanted.lease_until_us)
        return answer({"id": wanted.id})

    async def fail(self, request: web.Request) -> web.Response:
        wanted, journal = await _body(request, _Fail), await self._node.journal(request.match_info["name"])
        await self._node.in_pool(journal.fail, wanted.id, wanted.retry_in, wanted.lease_until_us)
        return answer({"id": wanted.id})

    async def stats(self, request: web.Request) -> web.Response:
        journal = await self._node.journal(request.match_info["name"])
        return answer(await self._node.in_pool(journal.stats))


async def _body(request: web.Request, kind: type[T]) -> T:
    raw = await request.read()
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not what {request.path} takes: {error}") from error


def _shown(value: Data) -> Any:
    """As JSON can hold it: bytes that are no text as {"base64": …}."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    return show_bytes(value) if isinstance(value, bytes) else value


def _give_back(journal: Journal, found: Job | Nothing) -> None:
    """Whoever asked for a job has gone: it is for somebody else."""
    if isinstance(found, Job) and found.lease_until_us:
        with contextlib.suppress(HeadraceError):
            journal.fail(found, retry_in=0)


def _value(value: Any) -> Data:
    if isinstance(value, dict):
        if value.keys() == {"base64"} and isinstance(value["base64"], str):
            try:
                return base64.b64decode(value["base64"], validate=True)
            except (binascii.Error, ValueError) as error:
                raise BadRequest(f"the value is not base64 ({error})") from error
        raise BadRequest('a value is text, a number, true or false, or {"base64": "…"}')
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise BadRequest('a value is text, a number, true or false, or {"base64": "…"}')
