"""Verifying a stream over HTTP: every byte of its log is read and checked, where it lies.

GET /streams/{name}/verify

The answer is JSON lines: how far it is, `{"done": bytes, "total": bytes}`, now and then, so that whoever
waits knows that it goes on; and at the end `{"report": …}`. One is verified at a time, as that keeps the disk
busy.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from headrace.kernel.errors import Busy, HeadraceError
from headrace.log.damage import Report
from headrace.server.node import Node
from headrace.wire.http_words import JSON_LINES, STREAM


class VerifyRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._checking: asyncio.Task[Report] | None = None

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/streams/{name}/verify", self.verify, allow_head=False)]

    async def verify(self, request: web.Request) -> web.StreamResponse:
        desk = await self._node.stream(request.match_info["name"], request.headers.get(STREAM))
        if self._checking is not None and not self._checking.done():
            raise Busy("a stream is being verified already: try again later")
        loop, told = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def progress(done: int, total: int) -> None:
            loop.call_soon_threadsafe(told.put_nowait, {"done": done, "total": total})

        self._checking = checking = loop.create_task(self._node.in_pool(desk.stream.verify, progress))
        checking.add_done_callback(lambda done: told.put_nowait(done.exception()))  # perhaps for nobody
        response = web.StreamResponse(headers={"Content-Type": JSON_LINES})
        try:
            while not isinstance(step := await told.get(), BaseException | None):
                await _say(request, response, step)
            await _say(request, response, {"report": checking.result()})
            await response.write_eof()
        except ConnectionError:
            pass  # whoever asked has gone
        except HeadraceError:
            if not response.prepared:
                raise
            if request.transport is not None:  # without its last chunk nobody takes it for the end
                request.transport.abort()
        return response


async def _say(request: web.Request, response: web.StreamResponse, fact: object) -> None:
    if not response.prepared:
        await response.prepare(request)
    await response.write(msgspec.json.encode(fact) + b"\n")
