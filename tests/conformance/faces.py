"""The faces of one store: opened as a directory, and over a node by its blocking and its async client.

All nodes of these tests live in one loop, in a thread of their own, so that one costs a few milliseconds.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import headrace as hr
from headrace.client import aio
from headrace.server.http import HttpServer
from headrace.server.node import Node

from .driven import DrivenStore

T = TypeVar("T")
FACES = ("open", "connect", "aio")
PATIENCE_S = 60.0


class Loop:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="test-loop", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        doing = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return doing.result(PATIENCE_S)
        except BaseException:
            doing.cancel()
            raise


@cache
def nodes() -> Loop:
    return Loop()


@cache
def clients() -> Loop:
    return Loop()


@contextmanager
def node(path: Path, tls: ssl.SSLContext | None = None, **options: Any) -> Iterator[str]:
    """A node over the store at `path`; its URL."""

    async def start(store: hr.Store) -> tuple[Node, HttpServer]:
        made = Node(store, **options)
        return made, await HttpServer.start(made, "127.0.0.1", 0, tls=tls)

    async def stop() -> None:
        await server.stop()
        await running.close()

    with hr.open(path) as store:
        running, server = nodes().run(start(store))
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.address[1]}"
        finally:
            nodes().run(stop())


@contextmanager
def opened(face: str, path: Path) -> Iterator[Any]:
    """The store at `path` as `face` shows it. `path` can be asked of each, for tests that look at files."""
    if face == "open":
        with hr.open(path) as store:
            yield store
        return
    with node(path) as url:
        if face == "connect":
            with hr.connect(url) as remote:
                remote.path = path  # type: ignore[attr-defined]
                yield remote
        else:
            driven = DrivenStore(clients(), aio.connect(url), path)
            try:
                yield driven
            finally:
                driven.close()
