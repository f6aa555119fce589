"""The server of headrace itself: in a thread, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import headrace as hr
from headrace.server.fj import FjServer
from headrace.server.fj_limits import ServerLimits

from .spool_child import processes


async def _serve(place: Path, port: int, started: threading.Event | Connection, ended: asyncio.Event) -> int:
    with hr.open(place) as store, store.journal("pages") as journal:
        server = await FjServer.start(journal, "127.0.0.1", port, ServerLimits(value_bytes=1 << 20))
        if isinstance(started, threading.Event):
            PORTS[id(started)] = server.address[1]
            started.set()
        else:
            started.send(server.address[1])
        await ended.wait()
        await server.stop()
    return 0


PORTS: dict[int, int] = {}


@contextmanager
def in_thread(place: Path) -> Iterator[int]:
    """The port of a server that runs in a thread of this process."""
    loop, started, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(_serve(place, 0, started, ended),))
    thread.start()
    assert started.wait(30)
    try:
        yield PORTS.pop(id(started))
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()


def serve(place: Path, port: int, started: Connection) -> None:
    asyncio.run(_serve(place, port, started, asyncio.Event()))


class Daemon:
    """A server in a process of its own; after a kill it comes back at the same port."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.port = 0
        self.start()

    def start(self) -> None:
        ours, theirs = processes.Pipe()
        self._process = processes.Process(target=serve, args=(self._place, self.port, theirs), daemon=True)
        self._process.start()
        assert ours.poll(60)
        self.port = ours.recv()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
