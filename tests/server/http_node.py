"""A node over HTTP for tests: in a thread of this process, or as `headrace serve`, which can be killed."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.server.fj import FjServer
from headrace.server.http import HttpServer
from headrace.server.http_limits import HttpLimits
from headrace.server.node import Node

ARROW = "application/vnd.apache.arrow.stream"
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def table(self) -> pa.Table:
        return pa.ipc.open_stream(self.body).read_all()

    @property
    def error(self) -> str:
        """The code of an error, which is a JSON object with a code and a sentence, and nothing else."""
        assert self.status >= 400, self
        assert self.headers["Content-Type"].startswith("application/json"), self
        found = self.json
        assert set(found) == {"error", "message"}, self
        assert found["message"], self
        code: str = found["error"]
        return code


@dataclass(slots=True)
class Asking:
    """What asks one node; a connection for each request, or one that is kept (`kept`)."""

    port: int
    kept: http.client.HTTPConnection | None = None
    token: str | None = None

    def __call__(
        self, method: str, path: str, body: Any = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """`body`: bytes as they are, a list as JSON lines, a table as Arrow, anything else as JSON."""
        sent, sent_headers = encoded(body)
        if self.token is not None:
            sent_headers |= self._authorized()
        connection = self.kept or http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, sent, {**sent_headers, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            if self.kept is None:
                connection.close()

    def status_of(self, method: str, path: str) -> int:
        """The status of an answer that may go on for ever."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, b"", {} if self.token is None else self._authorized())
            return connection.getresponse().status
        finally:
            connection.close()

    def _authorized(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def done(self, method: str, path: str, body: Any = b"", headers: Mapping[str, str] | None = None) -> Any:
        """The JSON that answers a request which must succeed."""
        answer = self(method, path, body, headers)
        assert answer.status < 300, answer
        return answer.json

    def rows(self, path: str) -> list[dict[str, Any]]:
        answer = self("GET", path)
        assert answer.status == 200, answer
        return answer.lines

    def by(self, token: str) -> Asking:
        """The same with a token."""
        return Asking(self.port, token=token)

    def keeping(self) -> Asking:
        """The same over one connection: for one thread."""
        return Asking(self.port, http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S))

    def following(self, path: str) -> Following:
        return Following(self.port, path, self.token)


class Following:
    """A reader whose response goes on: `next()` is the next line, None at a clean end."""

    def __init__(self, port: int, path: str, token: str | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._connection.request(
            "GET", path, headers={} if token is None else {"Authorization": f"Bearer {token}"}
        )
        self.response = self._connection.getresponse()
        assert self.response.status == 200, self.response.read()

    def next(self) -> dict[str, Any] | None:
        line = self.response.readline()
        return json.loads(line) if line else None

    def rest(self) -> list[dict[str, Any]]:
        return list(iter(self.next, None))

    def close(self) -> None:
        self.response.close()
        self._connection.close()


def encoded(body: Any) -> tuple[bytes, dict[str, str]]:
    if isinstance(body, bytes):
        return body, {}
    if isinstance(body, pa.Table):
        return ipc(body), {"Content-Type": ARROW}
    if isinstance(body, list):
        return b"".join(json.dumps(row).encode() + b"\n" for row in body), {}
    return json.dumps(body).encode(), {}


def ipc(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


@dataclass(slots=True)
class Served:
    """A node in a thread of this process."""

    ask: Asking
    node: Node
    server: HttpServer
    store: hr.Store
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Event
    thread: threading.Thread
    fj_port: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)
    """What the loop was told of exceptions that nobody took."""

    @property
    def desk(self) -> Any:
        """The desk of the only stream that was used."""
        (desk,) = self.node.desks
        return desk

    def stop(self) -> None:
        """As SIGTERM does it."""
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


@contextmanager
def served(
    place: Path,
    limits: HttpLimits | None = None,
    *,
    fj: str | None = None,
    expect: bool = True,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Served]:
    """`fj` names a journal that is served over FJ, too; `expect`: no exception stays without an owner."""
    started = threading.Event()
    made: list[Served] = []

    async def serve() -> None:
        with hr.open(place) as store:
            node = Node(store, limits)
            server = await HttpServer.start(node, "127.0.0.1", 0, tls=tls)
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            ask, thread = Asking(server.address[1]), threading.current_thread()
            one = Served(ask, node, server, store, loop, ended, thread)
            loop.set_exception_handler(lambda loop, context: one.failures.append(context))
            journals = None
            if fj is not None:
                await node.ensure_journal(fj)
                journals = await FjServer.start(await node.journal(fj), "127.0.0.1", 0)
                one.fj_port = journals.address[1]
            made.append(one)
            started.set()
            await ended.wait()
            await server.stop()
            if journals is not None:
                await journals.stop()
            await node.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(TIMEOUT_S)
    try:
        yield made[0]
    finally:
        made[0].stop()
    assert not (expect and made[0].failures), made[0].failures


class Daemon:
    """`headrace serve`: after a kill it comes back at the same port."""

    def __init__(self, store: Path, *words: str) -> None:
        self._store = store
        self._words = words
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "headrace.cli.app", "serve", "--json", "--store", str(self._store)]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), *self._words], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.facts = json.loads(self.process.stdout.readline())
        self.port = self.facts["port"]

    @property
    def ask(self) -> Asking:
        return Asking(self.port)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
