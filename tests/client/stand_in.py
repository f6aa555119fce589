"""A small server of FJ in a thread, in memory: enough to try clients and forwarders against.

`refuse` and `seen` let tests decide what it answers and look at what arrived.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.journal.errors import KeyTaken, LeaseLost, Locked, NoSuchKey
from headrace.journal.value import added, flipped
from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import HeadraceError
from headrace.wire.errors import ProtocolError
from headrace.wire.fj import (
    BUSY,
    DATA,
    LISTEN,
    OVERWRITE,
    RANGE,
    REGEX,
    UPDATE_TIMEOUT,
    WORKED_ON,
    Function,
    Limits,
    Pair,
    Query,
    Reply,
    Request,
    encode_reply,
)
from headrace.wire.fj_many import unpack_jobs, unpack_keys
from headrace.wire.fj_requests import RequestParser

DAY_US = 86_400_000_000
Refuse = Callable[[Request], str | None]


@dataclass
class Row:
    type: int
    value: bytes
    stamp: int
    expires: int | None = None
    worked_on: int = 0
    owner: object = None


@dataclass
class Task:
    resource: bytes
    domain: str
    priority: int
    due: int
    type: int
    value: bytes
    lease: int = 0


@dataclass
class Shelf:
    """What the server knows, and what it was told."""

    clock: Clock
    values: dict[bytes, Row] = field(default_factory=dict)
    pending: dict[bytes, Task] = field(default_factory=dict)
    leased: dict[bytes, Task] = field(default_factory=dict)
    cursors: dict[bytes, list[bytes]] = field(default_factory=dict)
    seen: list[Request] = field(default_factory=list)
    page: int = 3
    refuse: Refuse = field(default=lambda request: None)
    silent: bool = False
    drop_after: int | None = None
    """Close the connection once so many requests were carried out."""

    def answer(self, request: Request, who: Connection) -> Reply | None:
        now = self.clock.now_us()
        reply = Reply(request.identifier, 0, now)
        refusal = self.refuse(request)
        if refusal is not None:
            return reply._replace(error=refusal.encode())
        self.seen.append(request)
        try:
            return self.carry_out(request, reply, now, who)
        except NoSuchKey:
            return reply._replace(error=b"does not exist")
        except HeadraceError as error:
            return reply._replace(error=f"{error.code}: {error}".encode())

    def carry_out(self, request: Request, reply: Reply, now: int, who: Connection) -> Reply:
        key = request.key
        match request.function:
            case Function.NOP | Function.QUIT:
                return reply
            case Function.SET if request.query == Query.RANGE and request.upper == b"":
                for resource, kind, value in unpack_jobs(request.value or b""):
                    self.job(request._replace(upper=resource, type=kind, value=value), now)
            case Function.SET if request.query == Query.RANGE:
                self.job(request, now)
            case Function.SET:
                self.set(request, who)
            case Function.GET:
                return self.get(request, reply, now, who)
            case Function.NEXT:
                return self.next(request, reply, now, who)
            case Function.DELETE if not key:
                lost = []
                for resource in unpack_keys(request.value or b""):
                    try:
                        self.delete(request._replace(key=resource))
                    except LeaseLost:
                        lost.append(Pair(resource))
                return reply._replace(pairs=lost)
            case Function.DELETE:
                self.delete(request)
            case Function.ADD | Function.NOT | Function.TRUNCATE:
                row = self.row(key, who)
                self.change(request, row)
                pair = Pair(key, row.type, row.value)
                return reply if request.function == Function.TRUNCATE else reply._replace(pairs=[pair])
            case Function.LOCK:
                self.row(key, who).owner = who
            case Function.UNLOCK:
                self.row(key, who).owner = None
            case Function.RENAME | Function.LINK:
                row = self.row(key, who)
                assert request.upper is not None
                self.values[request.upper] = row
                if request.function == Function.RENAME:
                    del self.values[key]
            case _:
                return reply._replace(error=b"bad_request: there is no such function")
        return reply

    def row(self, key: bytes, who: object) -> Row:
        if key not in self.values:
            raise NoSuchKey("")
        row = self.values[key]
        if row.owner not in (None, who):
            raise Locked("somebody else has locked it")
        return row

    def set(self, request: Request, who: Connection) -> None:
        if request.flags & LISTEN:
            who.listening.add(request.key)
        old = self.values.get(request.key)
        if old is not None and not request.flags & OVERWRITE:
            raise KeyTaken("there is a value already")
        if old is not None:
            self.row(request.key, who)
        if old is None or old.stamp <= request.timestamp:
            new = Row(request.type or 0, request.value or b"", request.timestamp, request.timeout)
            self.values[request.key] = new
            who.server.push(request.key, new.type)

    def get(self, request: Request, reply: Reply, now: int, who: Connection) -> Reply:
        if request.flags & LISTEN:
            who.listening.add(request.key)
        if request.query != Query.KEY:
            return self.many(request, reply)
        row = self.values.get(request.key)
        if row is None or (request.flags & WORKED_ON and row.worked_on > now):
            raise NoSuchKey("")
        busy = BUSY if row.owner is not None or row.worked_on > now else 0
        if request.flags & UPDATE_TIMEOUT:
            row.expires = request.timeout or row.expires
        elif request.timeout is not None:
            row.worked_on = request.timeout
        value = row.value if request.flags & DATA else b""
        return Reply(
            request.identifier, busy, row.stamp, row.expires, b"", [Pair(request.key, row.type, value)]
        )

    def many(self, request: Request, reply: Reply) -> Reply:
        page = self.page
        if request.query == Query.CURSOR:
            keys = self.cursors.pop(request.key)
        elif request.flags & REGEX == REGEX:
            keys = [key for key in sorted(self.values) if re.search(request.key, key)]
        else:
            assert request.upper is not None
            assert request.count is not None
            keys = [key for key in sorted(self.values) if request.key <= key <= request.upper]
            page = min(page, request.count)
        pairs = [Pair(key, self.values[key].type, self.values[key].value) for key in keys[:page]]
        if len(keys) <= page:
            return reply._replace(pairs=pairs)
        cursor = b"cursor %d" % len(self.seen)
        self.cursors[cursor] = keys[page:]
        return reply._replace(pairs=pairs, cursor=cursor)

    def change(self, request: Request, row: Row) -> None:
        if request.function == Function.ADD:
            row.value = added(row.type, row.value, request.type or 0, request.value or b"")
        elif request.function == Function.NOT:
            row.value = flipped(row.type, row.value)
        else:
            size = int.from_bytes(request.value or b"", "little")
            row.value = row.value[:size].ljust(size, b"\0")

    def job(self, request: Request, now: int) -> None:
        domain, priority, due = request.key.decode().rsplit(":", 2)
        resource = request.upper or b""
        if not request.flags & WORKED_ON:
            task = Task(resource, domain, int(priority), int(due), request.type or 0, request.value or b"")
            self.pending[resource] = task
            return
        task = self.proven(resource, request.timeout)
        if request.flags & UPDATE_TIMEOUT:
            task.lease = int(due)
        else:
            del self.leased[resource]
            task.due, task.lease = int(due or now), 0
            self.pending.setdefault(resource, task)

    def proven(self, resource: bytes, lease: int | None) -> Task:
        task = self.leased.get(resource)
        if task is None or (lease is not None and task.lease != lease):
            raise LeaseLost("it is not leased to you any more")
        return task

    def next(self, request: Request, reply: Reply, now: int, who: Connection) -> Reply:
        domain = request.key.decode()
        fitting = [task for task in self.pending.values() if domain in ("", task.domain)]
        due = sorted(
            (task for task in fitting if task.due <= now), key=lambda task: (task.priority, task.due)
        )
        lease = request.timeout or now + DAY_US
        taken = due[: request.count if request.flags & RANGE else 1]
        if not taken:
            if request.flags & LISTEN:
                who.waiting.add(domain)
            later = min((task.due for task in fitting), default=None)
            return reply._replace(error=b"nothing to work on", timeout=later)
        for task in taken:
            del self.pending[task.resource]
            if not request.flags & OVERWRITE:
                self.leased[task.resource], task.lease = task, lease
        pairs = [Pair(task.resource, task.type, task.value) for task in taken]
        return reply._replace(pairs=pairs, timeout=None if request.flags & OVERWRITE else lease)

    def delete(self, request: Request) -> None:
        if request.timeout is not None:
            self.proven(request.key, request.timeout)
            del self.leased[request.key]
        elif request.key in self.values:
            del self.values[request.key]
        elif self.pending.pop(request.key, None) is None:
            raise NoSuchKey("")


class Connection(asyncio.Protocol):
    def __init__(self, server: StandIn) -> None:
        self.server = server
        self.parser = RequestParser(server.limits)
        self.listening: set[bytes] = set()
        self.waiting: set[str] = set()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        shelf, out = self.server.shelf, []
        try:
            requests = self.parser.feed(data)
        except ProtocolError:
            requests = []
        for request in requests:
            if shelf.drop_after is not None and len(shelf.seen) >= shelf.drop_after:
                shelf.drop_after = None
                self.transport.write(b"".join(out))
                self.transport.close()
                return
            reply = shelf.answer(request, self)
            if reply is not None and not shelf.silent:
                out.append(encode_reply(reply))
        if self.parser.failed:
            out.append(encode_reply(Reply(0, error=f"protocol: {self.parser.failed}".encode())))
        self.transport.write(b"".join(out))
        self.server.push_jobs()
        if self.parser.failed:
            self.transport.close()


class StandIn:
    def __init__(self, clock: Clock | None = None, limits: Limits | None = None) -> None:
        self.shelf = Shelf(clock or SystemClock())
        self.limits = limits or Limits()
        self.connections: set[Connection] = set()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()

    def push(self, key: bytes, kind: int) -> None:
        for connection in self.connections:
            if key in connection.listening:
                connection.transport.write(encode_reply(Reply(0, pairs=[Pair(key, kind, b"")])))

    def push_jobs(self) -> None:
        """Once to each who waits for a domain that has a job now."""
        for connection in self.connections:
            for domain in list(connection.waiting):
                if any(domain in ("", task.domain) for task in self.shelf.pending.values()):
                    connection.waiting.discard(domain)
                    connection.transport.write(encode_reply(Reply(0, pairs=[Pair(domain.encode(), 0, b"")])))

    def drop_all(self) -> None:
        """Cut every connection, as a crash would."""

        def cut() -> None:
            for connection in list(self.connections):
                connection.transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def run(self, port: int) -> None:
        async def serve() -> None:
            server = await asyncio.get_running_loop().create_server(
                lambda: Connection(self), "127.0.0.1", port
            )
            self.port = server.sockets[0].getsockname()[1]
            self._ready.set()
            await self._stopped.wait()
            server.close()
            for connection in list(self.connections):
                connection.transport.abort()

        self._stopped = asyncio.Event()
        self._loop.run_until_complete(serve())
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[StandIn]:
        thread = threading.Thread(target=self.run, args=(port,), daemon=True)
        thread.start()
        assert self._ready.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stopped.set)
            thread.join(10)
