"""A pipe over HTTP: a connection that begins as a request, and then carries a publisher's batches.

GET /streams/{name}/pipe   with `Connection: Upgrade` and `Upgrade: headrace-pipe`

A request of HTTP costs more than publishing a small batch. The pipe has the same verbs (`wire.pipe`), under
the same address, tokens, leases and limits.
"""

from __future__ import annotations

from aiohttp import web

from headrace.kernel.errors import BadSettings, Refused
from headrace.server.http_door import visit_of
from headrace.server.node import Node
from headrace.server.publish_pipe import PublishPipe
from headrace.wire.http_words import PIPE, PRODUCER, PUBLISHER, STREAM

_SWITCHED = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {PIPE}\r\nConnection: Upgrade\r\n\r\n".encode()


class PipeRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/streams/{name}/pipe", self.switch, allow_head=False)]

    async def switch(self, request: web.Request) -> web.Response:
        if request.headers.get("Upgrade", "").lower() != PIPE:
            raise Refused(f"this is a pipe: ask with Connection: Upgrade and Upgrade: {PIPE}")
        producer = request.headers.get(PRODUCER)
        if not producer:
            raise BadSettings(f"a pipe needs {PRODUCER}: a name by which batches that come again are known")
        name, id = request.match_info["name"], request.headers.get(STREAM)  # noqa: A001
        await self._node.stream(name, id)
        transport, visit = request.transport, visit_of(request)
        if transport is not None and visit is not None and not transport.is_closing():
            transport.write(_SWITCHED)
            visit.switch(PublishPipe(self._node, visit, name, id, producer, request.headers.get(PUBLISHER)))
        return web.Response()
