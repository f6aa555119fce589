"""The node's end of a pipe: a publisher's requests come one behind the other, and are answered in that order.

    bytes ──► PipeRequests ──► queue ──► one at a time: the stream's desk ──► answer

What is half sent, and what waits, counts as held by the node; a peer that sends more before it was answered
is not read from meanwhile, and one that stops in the middle of a request is cut off, as with HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any, cast

import msgspec

from headrace.kernel.errors import Broken, HeadraceError
from headrace.server.http_door import Visit
from headrace.server.http_errors import status_of
from headrace.server.http_publish import published_table, told, where
from headrace.server.node import Node
from headrace.wire.errors import ProtocolError
from headrace.wire.pipe import ANY, PipeRequest, PipeRequests, Verb, answer_bytes, key_bits

_WAITING_BYTES = 1 << 20
"""With so much waiting to be published, no more is read."""
_logger = logging.getLogger("headrace.server")


class PublishPipe(asyncio.Protocol):
    def __init__(
        self,
        node: Node,
        visit: Visit,
        stream: str,
        id: str | None,  # noqa: A002
        producer: str,
        publisher: str | None,
    ) -> None:
        """`publisher` holds the stream's lease; None: one of several that share the stream."""
        self._node = node
        self._visit = visit
        self._stream = stream
        self._id = id
        self._producer = producer
        self._publisher = publisher
        self._requests = PipeRequests(node.limits.body_bytes)
        self._waiting: deque[PipeRequest] = deque()
        self._waiting_bytes = 0
        self._held = 0
        self._working: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending = False

    # --- the connection's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._node.endings.add(self.end)

    def data_received(self, data: bytes) -> None:
        self._held += len(data)
        try:
            came = self._requests.feed(data)
        except ProtocolError as error:
            self._write(_error(error))
            self.end()
            return
        self._waiting.extend(came)
        self._waiting_bytes += sum(len(request.body) for request in came)
        if self._waiting and self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())
        self._bound()
        self._await_rest(bool(came))

    def pause_writing(self) -> None:
        """Answers are not taken: no more requests, either."""
        self._read(False)

    def resume_writing(self) -> None:
        self._read(True)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._node.endings.discard(self.end)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Answer what was taken, then close."""
        self._ending = True
        if self._working is None and self._transport is not None:
            self._transport.close()

    # --- requests

    async def _work(self) -> None:
        while self._waiting and not (self._ending and self._transport is None):
            request = self._waiting.popleft()
            with self._node.working():
                answer = await self._answer(request)
            self._write(answer)
            self._waiting_bytes -= len(request.body)
            if not self._waiting:
                self._let_go()
            self._bound()
        self._working = None
        if self._ending:
            self.end()

    async def _answer(self, request: PipeRequest) -> dict[str, Any]:
        try:
            return await self._done(request)
        except HeadraceError as error:
            answer = _error(error)
        except Exception as error:
            _logger.exception("a batch for %s failed", self._stream)
            answer = _error(Broken(f"{type(error).__name__}: this is a bug in headrace, see its log"))
        self._node.refused[answer["error"]] += 1
        return answer

    async def _done(self, request: PipeRequest) -> dict[str, Any]:
        desk = await self._node.stream(self._stream, self._id)
        if request.verb is Verb.PUBLISH:
            published = await desk.publish(
                partial(published_table, request.body, self._node.limits),
                len(request.body),
                (self._producer, request.sequence),
                at=None if request.base == ANY else request.base,
                who=self._publisher,
            )
            return told(published)
        if request.verb is Verb.HEAD:
            bits = key_bits(request.body)
            await desk.head(desk.stream.key_of(bits), who=self._publisher)
            return {"head": bits}
        if self._publisher is not None:
            desk.lease.take(self._publisher)
        found: dict[str, Any] = await desk.ask(where)
        return found

    def _write(self, answer: dict[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(answer_bytes(msgspec.json.encode(answer)))

    # --- bounds

    def _let_go(self) -> None:
        """Nothing is held any more but what is half sent. If the peer has gone, the visit let go of all."""
        if self._transport is not None:
            self._visit.let_go_of(self._held - self._requests.held)
            self._held = self._requests.held

    def _bound(self) -> None:
        if self._transport is None:
            return
        if self._visit.crowded and self._requests.held:  # it comes again, when there may be room
            self._transport.abort()
        else:
            self._read(self._waiting_bytes < _WAITING_BYTES)

    def _read(self, on: bool) -> None:
        if self._transport is None or self._transport.is_closing() or self._transport.is_reading() is on:
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _await_rest(self, progress: bool) -> None:
        """A request that is half sent has to go on."""
        if self._timer is not None and (progress or not self._requests.held):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._requests.held:
            limits = self._node.limits
            look = asyncio.get_running_loop().call_later
            self._timer = look(limits.body_s, self._look, self._requests.held)

    def _look(self, held: int) -> None:
        self._timer = None
        if self._transport is None:
            return
        paused = not self._transport.is_reading()
        if not paused and self._requests.held - held < self._node.limits.progress_bytes:
            self._transport.abort()
        else:
            self._await_rest(progress=False)


def _error(error: HeadraceError) -> dict[str, Any]:
    return {"error": error.code, "message": str(error), "status": status_of(error)}
