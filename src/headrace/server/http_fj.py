"""FJ over HTTP: a connection that begins as a request, and then speaks FJ.

GET /journals/{name}/fj   with `Connection: Upgrade` and `Upgrade: fj`

So every verb of a journal is there under the node's one address, with its tokens and its TLS.
"""

from __future__ import annotations

from aiohttp import web

from headrace.kernel.errors import Refused
from headrace.server.fj_visit import FjVisit
from headrace.server.http_door import visit_of
from headrace.server.node import Node
from headrace.wire.http_words import FJ

_SWITCHED = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {FJ}\r\nConnection: Upgrade\r\n\r\n".encode()


class FjRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/journals/{name}/fj", self.switch, allow_head=False)]

    async def switch(self, request: web.Request) -> web.Response:
        if request.headers.get("Upgrade", "").lower() != FJ:
            raise Refused(f"this speaks FJ: ask with Connection: Upgrade and Upgrade: {FJ}")
        server = await self._node.fj(request.match_info["name"])
        transport, visit = request.transport, visit_of(request)
        if transport is not None and visit is not None and not transport.is_closing():
            transport.write(_SWITCHED)
            visit.switch(FjVisit(server, visit, self._node.limits))
        return web.Response()
