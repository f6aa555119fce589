"""The HTTP face of a node.

    server = await HttpServer.start(node, "127.0.0.1", 7400)
    ...
    await server.stop()

Streams and journals are endpoints by their names; `/livez`, `/readyz` and `/metrics` are for those who watch
over it. There is no authentication yet, so only the machine itself may be listened to (see `headrace serve`).
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from headrace.server.http_errors import Handler, answer, errors_as_json
from headrace.server.http_journals import JournalRoutes
from headrace.server.http_streams import StreamRoutes
from headrace.server.metrics import NodeMetrics
from headrace.server.node import Node

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpLimits:
    body_bytes: int = 64 << 20
    header_bytes: int = 16 << 10
    keep_alive_s: float = 75.0
    drain_s: float = 10.0
    """How long stopping waits for requests that are under way."""


class HttpServer:
    def __init__(self, node: Node, limits: HttpLimits) -> None:
        """Use `HttpServer.start`."""
        self._node = node
        self._limits = limits
        self._metrics = NodeMetrics(node)
        self._runner: web.AppRunner | None = None

    @classmethod
    async def start(
        cls, node: Node, host: str = "127.0.0.1", port: int = 7400, limits: HttpLimits | None = None
    ) -> HttpServer:
        server = cls(node, limits or HttpLimits())
        server._runner = web.AppRunner(
            server._app(),
            access_log=None,
            keepalive_timeout=server._limits.keep_alive_s,
            shutdown_timeout=server._limits.drain_s,
            handler_cancellation=True,  # a reader that has gone is noticed before the next entry comes
        )
        await server._runner.setup()
        await web.TCPSite(server._runner, host, port).start()
        return server

    @property
    def address(self) -> tuple[str, int]:
        assert self._runner is not None
        host, port = self._runner.addresses[0][:2]
        return host, port

    async def stop(self) -> None:
        """Take no more connections; end followers; answer what was taken."""
        assert self._runner is not None
        self._node.stopping = True
        self._node.wake_followers()
        await self._runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(
            middlewares=[errors_as_json, self._counted],
            client_max_size=self._limits.body_bytes,
            # Arrow compresses by itself, and says how large it is unpacked: other packing is refused.
            handler_args={"max_field_size": self._limits.header_bytes, "auto_decompress": False},
        )
        app.add_routes(StreamRoutes(self._node).routes())
        app.add_routes(JournalRoutes(self._node).routes())
        app.add_routes(
            [
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._tell_metrics),
            ]
        )
        return app

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._node.requests += 1
        self._node.under_way += 1
        refused = True
        try:
            if request.headers.get("Content-Encoding", "identity") != "identity":
                raise web.HTTPBadRequest(reason="a body is taken as it is, without Content-Encoding")
            response = await handler(request)
            refused = False
            return response
        finally:
            self._node.refused += refused
            self._node.under_way -= 1

    async def _live(self, request: web.Request) -> web.Response:
        return answer({"alive": True})

    async def _ready(self, request: web.Request) -> web.Response:
        return answer({"ready": not self._node.stopping}, 503 if self._node.stopping else 200)

    async def _tell_metrics(self, request: web.Request) -> web.Response:
        text = await self._node.in_pool(self._metrics.text)
        return web.Response(body=text, headers={"Content-Type": _TEXT})
