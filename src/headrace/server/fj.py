"""The FJ server: one journal on one port.

    server = await FjServer.start(journal, host, port)
    ...
    await server.stop()

Everything that has arrived on a connection is done in one go, under one lock, in the thread of the event
loop; that touches memory only. A thread beside it brings the events to the disk, and each reply leaves when
its request is safe. Requests that come meanwhile share the next sync. While a client asks one thing after the
other, the loop does not sleep between them (`kernel.alertness`).

A peer is bounded in everything: the size of a frame, how much may wait to be sent to it (then nothing more is
read from it), how many requests a second, how many connections there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from headrace.journal import checks
from headrace.journal.journal import Journal
from headrace.kernel.alertness import Alertness
from headrace.kernel.dead_lines import watch
from headrace.kernel.errors import HeadraceError
from headrace.server.fj_connection import Connection
from headrace.server.fj_functions import Functions, waits_for_disk
from headrace.server.fj_limits import ServerLimits
from headrace.server.parting import Partings
from headrace.wire.fj import Limits, Reply, Request

_SLOW_S = 0.005
_WEIGHT = 0.1
"""Of the last sync in what syncs usually take: one that had to wait for a core does not make a disk slow."""
_logger = logging.getLogger("headrace.server")


class FjServer:
    def __init__(self, journal: Journal, limits: ServerLimits) -> None:
        """Use `FjServer.start`."""
        self.journal = journal
        self.engine = journal.engine
        self.limits = limits
        self.wire_limits = Limits(limits.key_bytes, limits.value_bytes)
        self.functions = Functions(journal.engine, limits.value_bytes)
        self.connections: set[Connection] = set()
        self.held_bytes = 0
        """Of requests that are not whole yet."""
        self.held_most = max(limits.held_bytes, 2 * limits.value_bytes)
        self.partings = Partings()
        self.requests = 0
        self.refused = 0
        self.failed: Callable[[], None] = lambda: None
        """Called in the loop when the journal takes no more operations."""
        self._heir: FjServer | None = None
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._unsafe: deque[tuple[int, Connection, bytes]] = deque()
        """Replies that leave when their ticket is settled, in order."""
        self._wanted = 0
        self._sync_s = 0.0
        """What a sync takes, on an average of the last ones."""
        self._wake = threading.Event()
        self._stopping = False
        self._committer = threading.Thread(target=self._commit, name="headrace-fj", daemon=True)
        self._alertness = Alertness()
        self._look_until = 0.0
        """For the next request that comes alone."""
        self._awake = False
        """Whether the loop looks for it instead of sleeping."""
        self._waiting: dict[bytes, set[Connection]] = {}
        self._looks_soon = False
        self._alarm: asyncio.TimerHandle | None = None

    @classmethod
    async def start(
        cls, journal: Journal, host: str = "127.0.0.1", port: int = 0, limits: ServerLimits | None = None
    ) -> FjServer:
        server = cls.begin(journal, limits)
        await server.listen(host, port)
        return server

    @classmethod
    def begin(cls, journal: Journal, limits: ServerLimits | None = None) -> FjServer:
        """A server that has no port of its own yet: connections are handed to it."""
        server = cls(journal, limits or ServerLimits())
        server._committer.start()
        server.engine.woken = server._woken
        return server

    async def listen(self, host: str, port: int) -> None:
        self._server = await self._loop.create_server(lambda: Connection(self._newest), host, port)
        for each in self._server.sockets:
            watch(each, self.limits.silent_s)

    async def hand_over(self, journal: Journal) -> FjServer:
        """The server of the same journal, opened anew, with the port of this one. Peers of this one end."""
        heir = self._heir = FjServer.begin(journal, self.limits)
        heir.failed, heir._server, self._server = self.failed, self._server, None
        self._stopping = True
        self._break("it is opened anew")
        await self._end_thread()
        return heir

    @property
    def _newest(self) -> FjServer:
        """Whoever has the port now."""
        return self if self._heir is None else self._heir._newest

    @property
    def waits(self) -> bool:
        """Whether some client waits for a job."""
        return bool(self._waiting)

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def stop(self) -> None:
        """Take no more requests, answer what was taken, close. The journal stays open."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.finish()
        deadline = self._loop.time() + self.limits.drain_s
        while self.connections and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()
        await self._end_thread()
        self.engine.woken = lambda: None

    async def _end_thread(self) -> None:
        self._stopping = True
        self._wake.set()
        await self._loop.run_in_executor(None, self._committer.join)
        if self._alarm is not None:
            self._alarm.cancel()

    # --- what connections ask for

    def handle(self, connection: Connection, requests: Sequence[Request]) -> int:
        """Do these requests, or as many as are a fair portion; how many. Replies leave when they are safe."""
        functions = self.functions
        functions.begin()
        operations = [functions.operation(request, connection) for request in requests]
        try:
            results, ticket = self.engine.run(operations, functions.enough)
        except HeadraceError as error:
            results, ticket = [error] * len(requests), 0
        requests = requests[: len(results)]
        safe = ticket if self.engine.syncs else 0
        if safe and not any(map(waits_for_disk, requests)):
            self.engine.write()
            safe = 0
        connection.answer(requests, results, safe)
        self.requests += len(requests)
        self._changed(ticket)
        if not self.engine.usable:
            self._break("it takes no more operations")
        return len(requests)

    def handle_one(self, connection: Connection, request: Request) -> None:
        """`handle` for a request that came alone, as those of a client that waits for each answer do."""
        engine = self.engine
        self._alertness.end()
        operation, size = self.functions.operation(request, connection)
        result: Reply | HeadraceError
        try:
            result, ticket = engine.start(operation, size)
        except HeadraceError as error:
            result, ticket = error, 0
        safe = 0
        if ticket and engine.syncs:
            if not waits_for_disk(request):
                engine.write()
            elif self._unsafe or len(self.connections) > 1 or self._sync_s > _SLOW_S:
                safe = ticket
            elif not self._settle_here(ticket):
                return
        connection.answer_one(request, result, safe)
        if isinstance(result, HeadraceError) and not engine.usable:
            self._break("it takes no more operations")
        self.requests += 1
        self._changed(ticket)

    def expect_another(self) -> None:
        """A request that came alone was done: look for the next one, if it is likely to come at once."""
        self._look_until = self._alertness.begin()
        if self._look_until and not self._awake:
            self._awake = True
            self._loop.call_soon(self._stay_awake)

    def _stay_awake(self) -> None:
        """Not while the other thread waits for the disk: it needs Python's lock when it comes back."""
        self._awake = not self._unsafe and time.monotonic() < self._look_until
        if self._awake:
            os.sched_yield()
            self._loop.call_soon(self._stay_awake)

    def _changed(self, ticket: int) -> None:
        """Those who listen or wait, here or elsewhere, are told: of jobs at once, of values when they are
        safe, as those in memory only are now.
        """
        if self.engine.listeners.any:
            self.engine.settle(0)
        if self.functions.moved():
            self.engine.wake_waiting()
        elif ticket and self._waiting:
            self.look_for_jobs()

    def _settle_here(self, ticket: int) -> bool:
        """Settle in the loop's own thread, while nobody but the one who asks has to wait for it.

        To hand it to the other thread and back costs as much as the sync of a quick disk. If the disk is
        slow, the other thread does it, so that the loop can do other things.
        """
        try:
            self._settle(ticket)
        except HeadraceError as error:
            self._break(error)
            return False
        return True

    def _settle(self, ticket: int) -> None:
        """In the loop's thread, or in the one that waits for the disk."""
        began = time.monotonic()
        self.engine.settle(ticket)
        self._sync_s += _WEIGHT * (time.monotonic() - began - self._sync_s)

    def when_safe(self, ticket: int, connection: Connection, reply: bytes) -> None:
        self._unsafe.append((ticket, connection, reply))
        self._wanted = max(self._wanted, ticket)
        self._wake.set()

    def wait_for_job(self, domain: bytes, connection: Connection) -> None:
        self._waiting.setdefault(domain, set()).add(connection)
        if not self._looks_soon:  # once for all that come together
            self._looks_soon = True
            self._loop.call_soon(self.look_for_jobs)

    def soon(self, call: Callable[[bytes, int], None], key: bytes, kind: int) -> None:
        """Call it in the loop, from any thread."""
        self._loop.call_soon_threadsafe(call, key, kind)

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        for domain in [domain for domain, waiting in self._waiting.items() if connection in waiting]:
            self._waiting[domain].discard(connection)
            if not self._waiting[domain]:
                del self._waiting[domain]

    def look_for_jobs(self) -> None:
        """Tell those who wait for a job that there is one, or look again when there will be."""
        self._looks_soon = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self._waiting:
            return
        with contextlib.suppress(HeadraceError):
            due, next_at = self.engine.now(self._due_domains)
            for domain in due:
                for connection in self._waiting.pop(domain, ()):
                    connection.tell_of_job(domain)
            if next_at is not None and self._waiting:
                delay = max(0, next_at - self.engine.clock.now_us()) / 1_000_000
                self._alarm = self._loop.call_later(min(delay, 3600.0), self.look_for_jobs)

    # --- inside

    def _due_domains(self, now: int) -> tuple[list[bytes], int | None]:
        """Which of the domains that are waited for have a job now, and when the next one may."""
        self.engine.jobs.tick(now)
        schedule = self.engine.state.jobs.schedule
        due, times = [], []
        for domain in self._waiting:
            name = checks.domain(checks.text(domain)) or None
            ready = schedule.first_of_any() if name is None else schedule.first(name)
            if ready is not None:
                due.append(domain)
            elif (time := schedule.next_time(name)) is not None:
                times.append(time)
        return due, min(times, default=None)

    def _woken(self) -> None:
        """Called in another thread that shares the journal."""
        if self._waiting:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.look_for_jobs)

    def _commit(self) -> None:
        """The thread that waits for the disk, so that the loop does not."""
        settled = 0
        while True:
            self._wake.wait()
            self._wake.clear()
            wanted = self._wanted
            failure = None
            if wanted > settled:
                try:
                    self._settle(wanted)
                    settled = wanted
                except HeadraceError as error:
                    failure = error
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                if failure is None:
                    self._loop.call_soon_threadsafe(self._release, settled)
                else:
                    self._loop.call_soon_threadsafe(self._break, failure)
            if self._stopping:
                return

    def _release(self, settled: int) -> None:
        unsafe = self._unsafe
        while unsafe and unsafe[0][0] <= settled:
            _ticket, connection, reply = unsafe.popleft()
            connection.send_safe(reply)
        if unsafe:
            self._wake.set()

    def _break(self, why: object) -> None:
        """Nothing that waits was made safe: nobody is told that it was."""
        if not self._stopping:
            _logger.error("the journal %s failed: %s", self.journal.name, why)
        self._unsafe.clear()
        for connection in list(self.connections):
            connection.abort()
        if not self._stopping and not self.engine.usable:
            self.failed()
