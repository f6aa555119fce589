"""One connection of an FJ client: bytes in, replies and pushes out, in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from headrace.journal.errors import BadRequest
from headrace.kernel.errors import Busy, HeadraceError
from headrace.server.fj_fields import refusal
from headrace.server.parting import is_ending
from headrace.wire.errors import ProtocolError
from headrace.wire.fj import Function, Pair, Reply, Request, encode_reply
from headrace.wire.fj_requests import RequestParser

if TYPE_CHECKING:
    from headrace.server.fj import FjServer


_PORTION = 512
_QUIT = int(Function.QUIT)


class Connection(asyncio.Protocol):
    def __init__(self, server: FjServer) -> None:
        self._server = server
        self._parser = RequestParser(server.wire_limits)
        self._transport: asyncio.Transport | None = None
        self._backlog: list[Request] = []
        """What was asked and is not done yet; nothing is read while there is some."""
        self._unsafe = 0
        """Replies that wait for the disk."""
        self._unsafe_bytes = 0
        self._choked = False
        """The peer does not read what it is sent."""
        self._ending = False
        """Nothing more is taken from the peer."""
        self._heard_all = False
        """The peer has ended its half."""
        self._told_off = False
        self._paused = False
        self._scheduled = False
        self._held_bytes = 0
        """Of a request that is not whole yet."""
        self._keys: set[bytes] = set()
        self._domains: set[bytes] = set()
        """Of which it waits for a job."""
        self._listened_bytes = 0
        """Of both."""
        self._locks: set[bytes] = set()
        self._pushes: dict[bytes, int] = {}
        """Pushes for a peer that does not read: the last one of each key."""
        self._limited = server.limits.requests_per_s is not None
        self._allowance = 0.0
        self._counted_at = 0.0

    # --- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.connections) >= self._server.limits.connections:
            self._server.refused += 1
            error = Busy("there are too many connections: try again later")
            word = encode_reply(refusal(Request(0, 0), error, 0))
            self._server.partings.turn_away(self._transport, word)
            return
        self._server.connections.add(self)
        self._transport.set_write_buffer_limits(high=self._server.limits.waiting_bytes)
        self._counted_at = asyncio.get_running_loop().time()

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        try:
            requests = self._parser.feed(data)
        except ProtocolError:  # the parser remembers; what came before is done first
            requests = []
        self._hold(self._parser.buffered_bytes)
        if len(requests) == 1 and not (
            self._backlog or self._choked or self._unsafe or self._limited or self._parser.failed is not None
        ):  # nothing else is under way: it can be done and answered at once
            request = requests[0]
            if request[0] != _QUIT:
                self._server.handle_one(self, request)
                self._server.expect_another()
                return
        self._backlog += requests
        self._work()

    def eof_received(self) -> bool:
        self._heard_all = True
        self.finish()
        return True  # stay open until everything is answered

    def pause_writing(self) -> None:
        self._choked = True
        self._regulate()

    def resume_writing(self) -> None:
        self._choked = False
        pushes, self._pushes = self._pushes, {}
        for key, kind in pushes.items():
            self.push(key, kind)
        self._work()

    def connection_lost(self, error: Exception | None) -> None:
        self._ending, self._backlog = True, []
        self._hold(0)
        self._server.forget(self)
        self._let_go()

    # --- what the server calls

    def answer(
        self, requests: Sequence[Request], results: Sequence[Reply | HeadraceError], ticket: int
    ) -> None:
        """Send the replies to these requests when the ticket is settled, or now if it is 0."""
        self._send(b"".join(map(self._encoded, requests, results)), ticket)

    def answer_one(self, request: Request, result: Reply | HeadraceError, ticket: int) -> None:
        """`answer` for one request."""
        self._send(self._encoded(request, result), ticket)

    def send_safe(self, reply: bytes) -> None:
        self._unsafe -= 1
        self._unsafe_bytes -= len(reply)
        if self._transport is not None:
            self._transport.write(reply)
        self._work()

    def finish(self) -> None:
        """Take nothing more; close when everything is answered."""
        self._ending = True
        self._work()

    def abort(self) -> None:
        self._backlog = []
        if self._transport is not None:
            self._transport.abort()

    # --- Peer, for the functions

    def may_listen(self, key: bytes) -> None:
        most = self._server.limits.listened_keys
        if key not in self._keys:
            if len(self._keys) >= most:
                raise BadRequest(f"a connection listens to up to {most} keys")
            self._check_listened(key)

    def listen(self, key: bytes) -> None:
        self.may_listen(key)
        if key not in self._keys:
            self._keys.add(key)
            self._listened_bytes += len(key)
            self._server.engine.listeners.add(key, self._told)

    def wait_for_job(self, domain: bytes) -> None:
        if domain not in self._domains:
            most = self._server.limits.waited_domains
            if len(self._domains) >= most:
                raise BadRequest(f"a connection waits for jobs of up to {most} domains")
            self._check_listened(domain)
            self._domains.add(domain)
            self._listened_bytes += len(domain)
        self._server.wait_for_job(domain, self)

    def tell_of_job(self, domain: bytes) -> None:
        """Of a domain that it waited for, and does not any more."""
        self._domains.discard(domain)
        self._listened_bytes -= len(domain)
        self.push(domain, 0)

    def holds(self, key: bytes, *, locked: bool) -> None:
        (self._locks.add if locked else self._locks.discard)(key)

    def push(self, key: bytes, kind: int) -> None:
        if self._transport is None or is_ending(self._transport):
            return
        if self._choked:
            self._pushes[key] = kind
        else:
            now = self._server.engine.clock.now_us()
            self._transport.write(encode_reply(Reply(0, 0, now, None, b"", [Pair(key, kind, b"")])))

    # --- inside

    def _hold(self, held: int) -> None:
        """What has come of a request counts; who holds some is cut off while all hold too much."""
        if held != self._held_bytes:
            server = self._server
            server.held_bytes += held - self._held_bytes
            self._held_bytes = held
            if held and server.held_bytes > server.held_most:
                self.abort()

    def _check_listened(self, name: bytes) -> None:
        most = self._server.limits.listened_bytes
        if self._listened_bytes + len(name) > most:
            raise BadRequest(f"what a connection listens to has up to {most} bytes")

    def _encoded(self, request: Request, result: Reply | HeadraceError) -> bytes:
        if not isinstance(result, HeadraceError):
            try:
                return encode_reply(result)
            except HeadraceError as error:  # what does not fit a frame concerns its request alone
                result = error
        self._server.refused += 1
        return encode_reply(refusal(request, result, self._server.engine.clock.now_us()))

    def _send(self, reply: bytes, ticket: int) -> None:
        if ticket or self._unsafe:
            self._unsafe += 1
            self._unsafe_bytes += len(reply)
            self._server.when_safe(ticket, self, reply)
            self._regulate()
        elif self._transport is not None:
            self._transport.write(reply)

    def _told(self, key: bytes, kind: int) -> None:
        """A value changed, perhaps in another thread."""
        with contextlib.suppress(RuntimeError):
            self._server.soon(self.push, key, kind)

    def _work(self) -> None:
        """Do a portion of what was asked; the rest when its replies have left, and others had their turn."""
        if self._backlog and not self._choked and self._unsafe_bytes <= self._server.limits.waiting_bytes:
            portion = self._backlog[:_PORTION]
            numbers = [request[0] for request in portion]
            if _QUIT in numbers:
                del portion[numbers.index(_QUIT) :]
                self._ending = True
            done = self._server.handle(self, portion) if portion else 0
            self._slow_down(done)
            if self._ending and done == len(portion) < min(_PORTION, len(self._backlog)):
                self._backlog = []  # what follows a QUIT
            del self._backlog[:done]
            if self._backlog and not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._work_on)
        if not self._backlog:
            if self._parser.failed is not None and not self._told_off:
                self._tell_off(self._parser.failed)
            if self._ending and not self._unsafe and self._transport is not None:
                self._part(self._transport)
        self._regulate()

    def _work_on(self) -> None:
        self._scheduled = False
        self._work()

    def _part(self, transport: asyncio.Transport) -> None:
        self._let_go()  # before the peer knows that it is over
        if self._heard_all:
            transport.close()
        else:
            self._server.partings.part(transport)

    def _let_go(self) -> None:
        """Of all that is the peer's while it is there."""
        engine = self._server.engine
        keys, self._keys = self._keys, set()
        for key in keys:
            engine.listeners.remove(key, self._told)
        locks, self._locks = self._locks, set()
        for key in locks:
            with contextlib.suppress(HeadraceError):
                engine.now(lambda now: engine.values.unlock(now, key, self))  # noqa: B023

    def _tell_off(self, error: HeadraceError) -> None:
        """The bytes make no sense any more: say so, and take no more of them."""
        self._server.refused += 1
        self._ending = self._told_off = True
        reply = encode_reply(refusal(Request(0, 0), error, self._server.engine.clock.now_us()))
        if self._unsafe:
            self._unsafe += 1
            self._unsafe_bytes += len(reply)
            self._server.when_safe(0, self, reply)
        elif self._transport is not None:
            self._transport.write(reply)

    def _regulate(self) -> None:
        """Read from the peer only while not too much waits for it."""
        full = bool(self._choked or self._backlog or self._allowance < 0)
        full = full or self._unsafe_bytes > self._server.limits.waiting_bytes
        if full == self._paused or self._transport is None or is_ending(self._transport):
            return
        self._paused = full
        if full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _slow_down(self, count: int) -> None:
        rate = self._server.limits.requests_per_s
        if rate is None or self._transport is None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._allowance = min(rate, self._allowance + (now - self._counted_at) * rate) - count
        self._counted_at = now
        if self._allowance < 0:
            loop.call_later(-self._allowance / rate, self._go_on)

    def _go_on(self) -> None:
        self._allowance = 0.0
        self._counted_at = asyncio.get_running_loop().time()
        self._regulate()
