"""The door: every connection of a node goes through it, so that none of them can keep it busy for nothing.

aiohttp speaks HTTP; a `Visit` stands between it and the socket, passes every event on, and keeps the limits
that aiohttp has not: how many connections there are, in all and from one address; how long a peer may take to
send the headers of a request, and its body, and to take the answer; how many bytes of bodies are held in all.

    accepted ──► head awaited ──► request under way ──► head awaited ──► …
                 head_s            body_s for each progress_bytes, in or out

A peer that is too slow with its headers is cut off. One that is too slow with a body gets an answer, since
the request that waits for it is given an error to raise. One that does not take its answer is cut off,
without the last chunk, so that it cannot take what it got for the whole.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from aiohttp import StreamReader, web

from headrace.kernel.errors import Busy, HeadraceError, TooSlow
from headrace.server.http_limits import HttpLimits
from headrace.server.parting import Partings

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b"
)
_BUSY = b'{"error":"busy","message":"this node has as many connections as it may: try again later"}\n'


class Door:
    """All connections of one server."""

    def __init__(self, server: web.Server, limits: HttpLimits) -> None:
        self._server = server
        self.limits = limits
        self.refused = 0
        """Connections that were one too many."""
        self.cut = 0
        """Connections that were too slow."""
        self.held_bytes = 0
        self.partings = Partings()
        self._visits: dict[asyncio.Transport, Visit] = {}
        self._by_address: Counter[str] = Counter()

    def __call__(self) -> asyncio.Protocol:
        return Visit(self, self._server())

    @property
    def connections(self) -> int:
        """In any thread."""
        return sum(not transport.is_closing() for transport in list(self._visits))

    @property
    def full(self) -> bool:
        """Whether more is held of all requests than may be."""
        return self.held_bytes > self.limits.bodies_bytes

    def busy(self) -> Busy:
        most = self.limits.bodies_bytes
        return Busy(f"more than {most} bytes of requests are being taken: try again later")

    def visit(self, request: web.Request) -> Visit | None:
        """The connection that a request came on, if it is still there."""
        return None if request.transport is None else self._visits.get(request.transport)

    def enter(self, visit: Visit, transport: asyncio.Transport, address: str) -> bool:
        """Whether there is room for one more."""
        if self._full(address):
            self._sweep()
            if self._full(address):
                self.refused += 1
                return False
        self._visits[transport] = visit
        self._by_address[address] += 1
        return True

    def leave(self, transport: asyncio.Transport, address: str) -> None:
        if self._visits.pop(transport, None) is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _full(self, address: str) -> bool:
        return (
            len(self._visits) >= self.limits.connections
            or self._by_address[address] >= self.limits.connections_per_address
        )

    def _sweep(self) -> None:
        """A connection that went over to another protocol does not tell us when it ends."""
        for transport, visit in list(self._visits.items()):
            if transport.is_closing():
                self.leave(transport, visit.address)


class Visit(asyncio.Protocol):
    """One connection: aiohttp's protocol, watched."""

    def __init__(self, door: Door, inner: Any) -> None:
        self._door = door
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._entered = False
        self._request: web.Request | None = None
        self._failed = False
        self._unread: StreamReader | None = None
        """The body of the last request: it was answered, perhaps before all of it had come."""
        self._held = 0
        self._arrived = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.address = ""
        self.switched = False
        """Whether it speaks another protocol than HTTP by now."""

    # --- the socket's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's are only alike
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._entered = self._door.enter(self, transport, self.address)
        if not self._entered:
            self._door.partings.turn_away(transport, _FULL % (len(_BUSY), _BUSY))
            return
        self._await_head()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._entered or self._failed:
            return
        if self._request is None and self._timer is None and not self.switched:
            self._await_head()  # it is the first byte of another request
        self._hold(len(data))
        self._inner.data_received(data)
        if self._unread is not None and not self._unread.is_eof():
            self._let_go()  # it is thrown away: the request is answered

    def eof_received(self) -> bool | None:
        answer: bool | None = self._inner.eof_received() if self._entered else None
        return answer

    def pause_writing(self) -> None:
        """The peer does not take what it is sent."""
        self._inner.pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        self._stalled = _stop(self._stalled)
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer, self._stalled = _stop(self._timer), _stop(self._stalled)
        self._let_go()
        if self._entered:
            assert self._transport is not None
            self._door.leave(self._transport, self.address)
            self._inner.connection_lost(error)

    # --- the request on it

    @contextmanager
    def serving(self, request: web.Request) -> Iterator[None]:
        """While this block runs, what comes is the request's body."""
        self._timer = _stop(self._timer)
        self._request, self._unread = request, None
        if not request.content.is_eof():
            self._await_body()
        try:
            if self._door.full:
                raise self._door.busy()
            yield
        finally:
            self._request, self._unread = None, request.content
            if self._failed and self._inner.transport is not None:  # what may come is not waited for
                request.content.feed_eof()
                self._inner.transport = self._door.partings.at_close(self._inner.transport)
                self._inner.close()
            self._timer = _stop(self._timer)
            self._let_go()

    # --- another protocol on it

    def switch(self, inner: asyncio.Protocol) -> None:
        """Speak another protocol from now on, which lets go by itself of what it was given."""
        http, self._inner, self.switched = self._inner, inner, True
        self._timer = _stop(self._timer)
        http.transport = None  # for HTTP it is over: nothing more is written or closed
        http.connection_lost(None)
        assert self._transport is not None
        inner.connection_made(self._transport)

    def part(self) -> None:
        """End the connection, so that what was written to it arrives."""
        assert self._transport is not None
        self._door.partings.part(self._transport)

    @property
    def crowded(self) -> bool:
        """Whether more is held of all connections than may be."""
        return self._door.full

    def let_go_of(self, size: int) -> None:
        """So much is not in memory any more; a part may have been let go with the request before it."""
        size = min(size, self._held)
        self._held -= size
        self._door.held_bytes -= size

    def _hold(self, size: int) -> None:
        self._arrived += size
        self._held += size
        self._door.held_bytes += size
        if self._door.full:
            self._fail(self._door.busy())

    def _let_go(self) -> None:
        self._door.held_bytes -= self._held
        self._held = 0

    def _fail(self, error: HeadraceError) -> None:
        """Whoever reads the body gets the error, instead of more."""
        if self._request is not None and not self._request.content.is_eof():
            self._failed = True
            self._request.content.set_exception(error)

    # --- time

    def _await_head(self) -> None:
        self._timer = self._loop.call_later(self._door.limits.head_s, self._cut)

    def _await_body(self) -> None:
        self._arrived = 0
        self._timer = self._loop.call_later(self._door.limits.body_s, self._look_at_body)

    def _look_at_body(self) -> None:
        self._timer = None
        if self._request is None or self._request.content.is_eof():
            return
        if self._arrived < self._door.limits.progress_bytes:
            self._fail(TooSlow(f"the body did not come within {self._door.limits.body_s:g} s: send it again"))
        else:
            self._await_body()

    def _await_reading(self, *, warned: bool = False) -> None:
        assert self._transport is not None
        left = self._transport.get_write_buffer_size()
        self._stalled = self._loop.call_later(self._door.limits.body_s, self._look_at_reading, left, warned)

    def _look_at_reading(self, left_before: int, warned: bool) -> None:
        """Cut at the second look without progress: before the first, the answer may still have grown."""
        assert self._transport is not None
        stuck = left_before - self._transport.get_write_buffer_size() < self._door.limits.progress_bytes
        if stuck and warned:
            self._cut()
        else:
            self._await_reading(warned=stuck)

    def _cut(self) -> None:
        self._door.cut += 1
        assert self._transport is not None
        self._transport.abort()


def visit_of(request: web.Request) -> Visit | None:
    """The connection that a request came on, as the door sees it; None if it has gone."""
    visit = None if request.transport is None else request.transport.get_protocol()
    return visit if isinstance(visit, Visit) else None


def _stop(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """No timer any more."""
    if timer is not None:
        timer.cancel()
    return None
