"""GET /openapi.json: what the node takes and answers, for tools that read such documents."""

from __future__ import annotations

from importlib.metadata import version

from aiohttp import web

from headrace.server.http_errors import answer
from headrace.server.node import Node
from headrace.server.openapi import document
from headrace.server.openapi_journals import JOURNAL_KINDS, JOURNALS, NODE
from headrace.server.openapi_parts import PART_KINDS, PARTS
from headrace.server.openapi_streams import STREAM_KINDS, STREAMS

OPERATIONS = {**NODE, **STREAMS, **PARTS, **JOURNALS}
KINDS = (*STREAM_KINDS, *PART_KINDS, *JOURNAL_KINDS)


class OpenApiRoutes:
    def __init__(self, node: Node) -> None:
        self._document = document(OPERATIONS, KINDS, version("headrace"))

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/openapi.json", self.tell)]

    async def tell(self, request: web.Request) -> web.Response:
        return answer(self._document)
