"""The node's end of a pipe: a publisher's requests come one behind the other, and are answered in that order.

    bytes ──► PipeRequests ──► waiting ──► one after the other: the stream's desk ──► begun ──► answers

A request has its place at the desk before the next one is looked at, so their order is kept; it need not be
answered by then, so those that came together are synced together. All of that happens as the bytes come and
as the desk answers, without a task or a future for each request: only while the desk has no room, or is not
open yet, a task waits for it.

What is half sent, and what waits, counts as held by the node; a peer that sends more before it was answered
is not read from meanwhile, and one that stops in the middle of a request is cut off, as with HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgspec

from headrace.kernel.errors import Broken, HeadraceError
from headrace.server.http_door import Visit
from headrace.server.http_errors import status_of
from headrace.server.http_publish import told, where
from headrace.server.node import Node
from headrace.server.published_bodies import PublishedBodies
from headrace.server.stream_desk import Work, publishing
from headrace.stream.publisher import Publisher
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


_NOT_YET = object()


class _Begun:
    """A request that has its place."""

    __slots__ = ("came", "size", "tell")

    def __init__(self, size: int) -> None:
        self.size = size
        self.came: Any = _NOT_YET
        """What came of it; an exception, if it failed."""
        self.tell: Callable[[Any], dict[str, Any]] = dict
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
        self._bodies = PublishedBodies(node.limits)
        self._waiting: deque[PipeRequest | ProtocolError] = deque()
        self._begun: deque[_Begun] = deque()
        self._under_way = False
        """A pipe counts as one request that is under way, however many it has sent."""
        self._waiting_bytes = 0
        self._held = 0
        self._making_way: asyncio.Task[None] | None = None
        """Waits until the first of those that wait can have its place."""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answers_taken = True
        self._ending = False

    # --- the connection's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._node.endings.add(self.end)
        if self._node.stopping:  # since it was let in
            self.end()

    def data_received(self, data: bytes) -> None:
        if self._ending:  # it comes again
            self._visit.let_go_of(len(data))
            return
        self._held += len(data)
        came: list[PipeRequest | ProtocolError] = list(self._requests.feed(data))
        if self._requests.wrong is not None:
            came.append(self._requests.wrong)  # told when all before it is answered
            self._ending = True
        if came and not self._under_way:
            self._under_way = True
            self._node.begin_work()
        self._node.requests += len(came)
        self._waiting.extend(came)
        self._waiting_bytes += sum(map(_size, came))
        self._go_on()
        self._await_rest(bool(came))

    def pause_writing(self) -> None:
        """Answers are not taken: no more requests, either."""
        self._answers_taken = False
        self._bound()

    def resume_writing(self) -> None:
        self._answers_taken = True
        self._bound()

    def connection_lost(self, error: Exception | None) -> None:
        """What has no place yet is let go: nobody would be told, and nobody counts it any more."""
        self._transport = None
        self._node.endings.discard(self.end)
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()
        self._go_on()

    def end(self) -> None:
        """Answer what was taken, then close."""
        self._ending = True
        if not self._busy and self._transport is not None:
            self._visit.part()

    # --- requests

    @property
    def _busy(self) -> bool:
        return bool(self._waiting or self._begun or self._making_way is not None)

    def _go_on(self) -> None:
        """Answer what is done and give others their place, until neither goes any further."""
        answered = False
        while (done := self._answer_first()) or self._place_first():
            answered = answered or done
        if answered:
            self._let_go()
        self._bound()
        if self._under_way and not self._busy:
            self._under_way = False
            self._node.end_work()
            if self._ending:
                self.end()

    def _answer_first(self) -> bool:
        """Whether the first of those that have their place is done, and was answered."""
        if not self._begun or self._begun[0].came is _NOT_YET:
            return False
        begun = self._begun.popleft()
        self._write(self._told(begun))
        self._waiting_bytes -= begun.size
        return True

    def _place_first(self) -> bool:
        """Whether the first of those that wait has got its place, or failed to."""
        if not self._waiting or self._making_way is not None or len(self._begun) >= _BEGUN_MAX:
            return False
        request = self._waiting[0]
        begun = _Begun(_size(request))
        try:
            placed = self._place(request, begun)
        except Exception as error:
            begun.came, placed = error, True
        if placed:
            self._waiting.popleft()
            self._begun.append(begun)
        else:
            self._making_way = asyncio.get_running_loop().create_task(self._make_way())
        return placed

    def _place(self, request: PipeRequest | ProtocolError, begun: _Begun) -> bool:
        """Give it its place at the desk; False if that cannot be done at once."""
        if isinstance(request, ProtocolError):
            raise request
        desk = self._node.open_stream(self._stream, self._id)
        if desk is None:
            return False
        work: Work = where
        if request.verb is Verb.PUBLISH:
            once, at = (self._producer, request.sequence), None if request.base == ANY else request.base
            work = publishing(partial(self._bodies.records, memoryview(request.body)), once, at)
            begun.tell = lambda done: told(desk.counted(done))
        elif request.verb is Verb.HEAD:
            bits = key_bits(request.body)
            work = partial(_move_head, desk.stream.key_of(bits))
            begun.tell = lambda done: {"head": bits}
        elif self._publisher is not None:
            desk.lease.take(self._publisher)
        check = None if request.verb is Verb.WHERE else partial(desk.lease.check, self._publisher)
        return desk.place(work, len(request.body), partial(self._came, begun), check)

    async def _make_way(self) -> None:
        try:
            await (await self._node.stream(self._stream, self._id)).room()
        except Exception as error:  # which the first that waits is told, if it still does
            if self._waiting:
                begun = _Begun(_size(self._waiting.popleft()))
                begun.came = error
                self._begun.append(begun)
        self._making_way = None
        self._go_on()

    def _came(self, begun: _Begun, result: Any) -> None:
        """The desk has done it."""
        begun.came = result
        if begun is self._begun[0]:
            self._go_on()

    def _told(self, begun: _Begun) -> dict[str, Any]:
        try:
            if isinstance(begun.came, Exception):
                raise begun.came
            return begun.tell(begun.came)
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
        if self._ending:  # what comes is thrown away
            self._read(True)
        elif self._visit.crowded and self._requests.held:  # it comes again, when there may be room
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
        if self._timer is None and not self._requests.held:
            return
        if self._timer is not None and (progress or not self._requests.held):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._requests.held:
            limits = self._node.limits
            look = asyncio.get_running_loop().call_later
            self._timer = look(limits.body_s, self._look, self._requests.held)

    def _look(self, held: int) -> None:
        self._timer = None
        if self._transport is None or self._ending:
            return
        paused = not self._transport.is_reading()
        if not paused and self._requests.held - held < self._node.limits.progress_bytes:
            self._transport.abort()
        else:
            self._await_rest(progress=False)


def _move_head(key: Any, publisher: Publisher) -> None:
    publisher.head(key)


def _size(request: PipeRequest | ProtocolError) -> int:
    return REQUEST_HEAD_BYTES + len(request.body) if isinstance(request, PipeRequest) else 0


def _error(error: HeadraceError) -> dict[str, Any]:
    return {"error": error.code, "message": str(error), "status": status_of(error)}
