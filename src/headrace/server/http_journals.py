"""Journals over HTTP. The FJ protocol is quicker; this one every tool speaks.

GET   /journals                  their names
PUT   /journals/{name}           make sure that it is there, perhaps with settings
GET   /journals/{name}/settings
GET   /journals/{name}/stats
POST  /journals/{name}/{verb}    see `http_jobs` and `http_values`
"""

from __future__ import annotations

import dataclasses

import msgspec
from aiohttp import web

from headrace.journal.errors import BadRequest
from headrace.journal.settings import JournalSettings
from headrace.server.http_errors import answer
from headrace.server.http_gate import holder_of, may_create
from headrace.server.http_jobs import JobRoutes
from headrace.server.http_values import ValueRoutes
from headrace.server.journal_verbs import NO_JSON, journal_of
from headrace.server.node import Node

_SETTINGS = {field.name for field in dataclasses.fields(JournalSettings)}


class JournalRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/journals", self.names),
            web.put("/journals/{name}", self.ensure),
            web.get("/journals/{name}/settings", self.settings),
            web.get("/journals/{name}/stats", self.stats),
            *JobRoutes(self._node).routes(),
            *ValueRoutes(self._node).routes(),
        ]

    async def names(self, request: web.Request) -> web.Response:
        names = await self._node.in_pool(self._node.store.journals)
        return answer({"journals": holder_of(request).seen("journals", names)})

    async def ensure(self, request: web.Request) -> web.Response:
        name, settings = request.match_info["name"], _settings(await request.read())
        created = await self._node.ensure_journal(name, settings, may_change=may_create(request))
        return answer({"name": name, "created": created}, 201 if created else 200)

    async def settings(self, request: web.Request) -> web.Response:
        return answer((await journal_of(self._node, request)).settings)

    async def stats(self, request: web.Request) -> web.Response:
        journal = await journal_of(self._node, request)
        return answer(await self._node.in_pool(journal.stats))


def _settings(raw: bytes) -> JournalSettings | None:
    """Those that are given; the others are as they are by default. None: none are given."""
    if not raw:
        return None
    try:
        given = msgspec.json.decode(raw, type=dict[str, object])
        if unknown := sorted(set(given) - _SETTINGS):
            raise BadRequest(
                f"there is no setting {unknown[0][:40]!r}: there are {', '.join(sorted(_SETTINGS))}"
            )
        return msgspec.convert(given, JournalSettings)
    except NO_JSON as error:
        raise BadRequest(f"settings of a journal: {error}") from error
