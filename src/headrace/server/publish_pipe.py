"""The node's end of a pipe: a publisher's requests come one behind the other, and are answered in that order.

    bytes ──► PipeRequests ──► waiting ──► one after the other: the stream's desk ──► begun ──► answers

A request has its place at the desk before the next one is looked at, so their order is kept; it need not be
answered by then, so those that came together are synced together.

What is half sent, and what waits, counts as held by the node; a peer that sends more before it was answered
is not read from meanwhile, and one that stops in the middle of a request is cut off, as with HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import msgspec

from headrace.kernel.errors import Broken, HeadraceError
from headrace.server.http_door import Visit
from headrace.server.http_errors import status_of
from headrace.server.http_publish import published_table, told, where
from headrace.server.node import Node
from headrace.wire.errors import ProtocolError
from headrace.wire.pipe import (
    ANY,
    REQUEST_HEAD_BYTES,
    PipeRequest,
    PipeRequests,
    Verb,
    answer_bytes,
    key_bits,
)

_WAITING_BYTES = 1 << 20
"""With so much waiting to be answered, no more is read."""
_BEGUN_MAX = 64
"""So many requests of one pipe are at the desk at a time: the others have their turn, too."""
_logger = logging.getLogger("headrace.server")


@dataclass(frozen=True, slots=True)
class _Begun:
    size: int
    answer: asyncio.Future[Any]
    tell: Callable[[Any], dict[str, Any]]
    """What is answered, by what came of it."""


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
        self._waiting: deque[PipeRequest | ProtocolError] = deque()
        self._begun: deque[_Begun] = deque()
        self._under_way = ExitStack()
        """A pipe counts as one request that is under way, however many it has sent."""
        self._waiting_bytes = 0
        self._held = 0
        self._working: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answers_taken = True
        self._ending = False

    # --- the connection's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._node.endings.add(self.end)

    def data_received(self, data: bytes) -> None:
        if self._ending:  # it comes again; read all the same, or closing would reset the line under answers
            self._visit.let_go_of(len(data))
            return
        self._held += len(data)
        came: list[PipeRequest | ProtocolError] = list(self._requests.feed(data))
        if self._requests.wrong is not None:
            came.append(self._requests.wrong)  # told when all before it is answered
            self._ending = True
        if came and not self._busy:
            self._under_way.enter_context(self._node.working())
            self._node.requests -= 1
        self._node.requests += len(came)
        self._waiting.extend(came)
        self._waiting_bytes += sum(map(_size, came))
        self._go_on()
        self._bound()
        self._await_rest(bool(came))

    def pause_writing(self) -> None:
        """Answers are not taken: no more requests, either."""
        self._answers_taken = False
        self._bound()

    def resume_writing(self) -> None:
        self._answers_taken = True
        self._bound()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._node.endings.discard(self.end)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Answer what was taken, then close."""
        self._ending = True
        if not self._busy and self._transport is not None:
            self._transport.close()

    # --- requests

    @property
    def _busy(self) -> bool:
        return bool(self._waiting or self._begun or self._working is not None)

    @property
    def _left(self) -> bool:
        """Whether the node stops, and nobody is there who would be told."""
        return self._ending and self._transport is None

    def _go_on(self) -> None:
        if self._left:
            self._waiting.clear()
        if self._working is None and self._waiting and len(self._begun) < _BEGUN_MAX:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Give each request its place at the desk."""
        while self._waiting and len(self._begun) < _BEGUN_MAX and not self._left:
            request = self._waiting.popleft()
            begun = await self._begin(request)
            self._begun.append(begun)
            begun.answer.add_done_callback(self._answer)
        self._working = None

    async def _begin(self, request: PipeRequest | ProtocolError) -> _Begun:
        try:
            if isinstance(request, ProtocolError):
                raise request
            answer, tell = await self._wanted(request)
        except Exception as error:
            answer, tell = asyncio.get_running_loop().create_future(), dict
            answer.set_exception(error)
        return _Begun(_size(request), answer, tell)

    async def _wanted(
        self, request: PipeRequest
    ) -> tuple[asyncio.Future[Any], Callable[[Any], dict[str, Any]]]:
        desk = await self._node.stream(self._stream, self._id)
        if request.verb is Verb.PUBLISH:
            publishing = await desk.publish(
                partial(published_table, request.body, self._node.limits),
                len(request.body),
                (self._producer, request.sequence),
                at=None if request.base == ANY else request.base,
                who=self._publisher,
            )
            return publishing, lambda done: told(desk.counted(done))
        if request.verb is Verb.HEAD:
            bits = key_bits(request.body)
            moving = await desk.head(desk.stream.key_of(bits), who=self._publisher)
            return moving, lambda done: {"head": bits}
        if self._publisher is not None:
            desk.lease.take(self._publisher)
        return await desk.begin(where), dict

    def _answer(self, _: asyncio.Future[Any]) -> None:
        """Write the answers that are there, up to the first that is not."""
        while self._begun and self._begun[0].answer.done():
            begun = self._begun.popleft()
            self._write(self._told(begun))
            self._waiting_bytes -= begun.size
        self._let_go()
        self._go_on()
        self._bound()
        if not self._busy:
            self._under_way.close()
            if self._ending:
                self.end()

    def _told(self, begun: _Begun) -> dict[str, Any]:
        try:
            return begun.tell(begun.answer.result())
        except HeadraceError as error:
            answer = _error(error)
        except Exception as error:
            _logger.error("a batch for %s failed", self._stream, exc_info=error)
            answer = _error(Broken(f"{type(error).__name__}: this is a bug in headrace, see its log"))
        self._node.refused[answer["error"]] += 1
        return answer

    def _write(self, answer: dict[str, Any]) -> None:
        if self._transport is not None:
            self._transport.write(answer_bytes(msgspec.json.encode(answer)))

    # --- bounds

    def _let_go(self) -> None:
        """What is answered is not held any more. If the peer has gone, the visit let go of all."""
        if self._transport is not None:
            held = self._waiting_bytes + self._requests.held
            self._visit.let_go_of(self._held - held)
            self._held = held

    def _bound(self) -> None:
        if self._transport is None:
            return
        if self._visit.crowded and self._requests.held:  # it comes again, when there may be room
            self._transport.abort()
        else:
            self._read(self._answers_taken and self._waiting_bytes < _WAITING_BYTES)

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


def _size(request: PipeRequest | ProtocolError) -> int:
    return REQUEST_HEAD_BYTES + len(request.body) if isinstance(request, PipeRequest) else 0


def _error(error: HeadraceError) -> dict[str, Any]:
    return {"error": error.code, "message": str(error), "status": status_of(error)}
