"""The HTTP face of a node.

    server = await HttpServer.start(node, "127.0.0.1", 7400)
    ...
    await server.stop()

Streams and journals are endpoints by their names; `/livez`, `/readyz` and `/metrics` are for those who watch
over it. A request goes through the door (`http_door`: connections and their time), the request log, errors as
JSON, the gate (`http_gate`: tokens and permissions), and then to its route.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import nullcontext, suppress

from aiohttp import web

from headrace.kernel.dead_lines import watch
from headrace.kernel.errors import Busy, Closed, HeadraceError
from headrace.server.http_compact import CompactRoutes
from headrace.server.http_door import Door
from headrace.server.http_errors import Handler, answer, code_of, errors_as_json
from headrace.server.http_fj import FjRoutes
from headrace.server.http_frames import FrameRoutes
from headrace.server.http_gate import Gate
from headrace.server.http_history import HistoryRoutes
from headrace.server.http_journals import JournalRoutes
from headrace.server.http_log import logged
from headrace.server.http_openapi import OpenApiRoutes
from headrace.server.http_permissions import check_table, need_of, routes_of
from headrace.server.http_pipe import PipeRoutes
from headrace.server.http_plan import PlanRoutes
from headrace.server.http_positions import PositionRoutes
from headrace.server.http_publish import PublishRoutes
from headrace.server.http_read import ReadRoutes
from headrace.server.http_segments import SegmentRoutes
from headrace.server.http_staging import StagingRoutes
from headrace.server.http_streams import StreamRoutes
from headrace.server.http_verify import VerifyRoutes
from headrace.server.metrics import NodeMetrics
from headrace.server.node import Node
from headrace.server.open_files import within_files
from headrace.server.parting import LONGEST_S

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_BACKLOG = 1024
_LAST_WORDS_S = 1.0
"""For answers that are made, and only have to be written."""


class HttpServer:
    def __init__(self, node: Node, gate: Gate) -> None:
        """Use `HttpServer.start`."""
        self._node = node
        self._limits = node.limits
        self._gate = gate
        self._metrics = NodeMetrics(node, lambda: self.door)
        self._runner = web.AppRunner(
            self._app(),
            access_log=None,
            keepalive_timeout=node.limits.keep_alive_s,
            shutdown_timeout=min(node.limits.drain_s, _LAST_WORDS_S),
            handler_cancellation=True,  # a reader that has gone is noticed before the next entry comes
        )
        self.door: Door
        """All its connections."""
        self._listening: asyncio.Server | None = None

    @classmethod
    async def start(
        cls,
        node: Node,
        host: str = "127.0.0.1",
        port: int = 7400,
        *,
        tls: ssl.SSLContext | None = None,
        tokens_required: bool = False,
    ) -> HttpServer:
        """`tokens_required`: without tokens nobody gets in, for addresses that others reach."""
        server = cls(node, Gate(node, required=tokens_required))
        await server._gate.start()
        await server._runner.setup()
        assert server._runner.server is not None
        server.door = Door(server._runner.server, within_files(server._limits))
        server._listening = await asyncio.get_running_loop().create_server(
            server.door,
            host,
            port,
            ssl=tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if tls is None else server._limits.head_s,
            ssl_shutdown_timeout=None if tls is None else LONGEST_S,
        )
        for each in server._listening.sockets:
            watch(each, server._limits.silent_s)
        return server

    @property
    def address(self) -> tuple[str, int]:
        assert self._listening is not None
        host, port = self._listening.sockets[0].getsockname()[:2]
        return host, port

    @property
    def routes(self) -> list[str]:
        return routes_of(self._runner.app)

    async def stop(self) -> None:
        """Take no more connections; end followers; answer what was taken."""
        assert self._listening is not None
        self._node.stopping = True
        self._listening.close()
        self._node.wake_followers()
        await self._node.stop_fj()
        await self._drain()
        await self._runner.cleanup()
        await self._gate.stop()

    async def _drain(self) -> None:
        """Wait for what is under way. aiohttp would take no more of a body that is half sent."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain_s):
                while self._node.under_way:
                    self._node.rest.clear()
                    await self._node.rest.wait()
                await self.door.partings.over()

    def _app(self) -> web.Application:
        app = web.Application(
            middlewares=[logged, errors_as_json, self._counted, self._gate.guard],
            client_max_size=self._limits.body_bytes,
            # Arrow compresses by itself, and says how large it is unpacked: other packing is refused.
            handler_args={
                "max_field_size": self._limits.header_bytes,
                "max_headers": self._limits.headers,
                "max_line_size": self._limits.line_bytes,
                "auto_decompress": False,
            },
        )
        basic = (StreamRoutes, PublishRoutes, PipeRoutes, ReadRoutes, FrameRoutes, JournalRoutes, FjRoutes)
        # For programs that work in large parts.
        parts = (PlanRoutes, PositionRoutes, StagingRoutes, SegmentRoutes, CompactRoutes, HistoryRoutes)
        for routes in (*basic, *parts, VerifyRoutes, OpenApiRoutes):
            app.add_routes(routes(self._node).routes())
        app.add_routes(
            [
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._tell_metrics),
            ]
        )
        check_table(app)
        return app

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        node, refused = self._node, "gone"
        visit = self.door.visit(request)
        try:
            with node.working(), nullcontext() if visit is None else visit.serving(request):
                if not need_of(request).open:  # probes are answered, or a busy node would be restarted
                    self._check_room()
                if request.headers.get("Content-Encoding", "identity") != "identity":
                    raise web.HTTPBadRequest(reason="a body is taken as it is, without Content-Encoding")
                response = await handler(request)
            refused = ""
            return response
        except HeadraceError as error:
            refused = error.code
            raise
        except web.HTTPException as error:
            refused = code_of(error)
            raise
        finally:
            if refused:
                node.refused[refused] += 1

    def _check_room(self) -> None:
        if self._node.stopping:
            raise Closed("this node is stopping: try again later, or elsewhere")
        if self._node.under_way > self._limits.requests:
            raise Busy(f"{self._limits.requests} requests are under way already: try again later")

    async def _live(self, request: web.Request) -> web.Response:
        return answer({"alive": True})

    async def _ready(self, request: web.Request) -> web.Response:
        return answer({"ready": not self._node.stopping}, 503 if self._node.stopping else 200)

    async def _tell_metrics(self, request: web.Request) -> web.Response:
        text = await self._node.in_pool(self._metrics.text)
        return web.Response(body=text, headers={"Content-Type": _TEXT})
