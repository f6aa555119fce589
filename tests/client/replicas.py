"""Replicas for tests: each in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.client.node_line import NodeLine
from headrace.client.replica import Replica, ReplicaState
from headrace.kernel.errors import HeadraceError
from waiting import until

TIMEOUT_S = 60


class FollowingProcess:
    """`headrace stream follow`, or `journal follow`, to be killed and started again."""

    def __init__(self, noun: str, name: str, store: Path, port: int) -> None:
        self._words = [noun, "follow", f"http://127.0.0.1:{port}", name, "--store", str(store)]
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "headrace.cli.app", *self._words]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Running:
    """A replica that runs; `error` is what it ended with."""

    def __init__(self, store: Path, url: str, name: str, **how: Any) -> None:
        self.error: HeadraceError | None = None
        self._started = threading.Event()
        self._once = how.pop("once", False)
        self._arguments = (store, url, name, how)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._started.wait(TIMEOUT_S)

    async def _run(self) -> None:
        store, url, name, how = self._arguments
        with hr.open(store) as opened:
            line = NodeLine(
                url, **{word: how.pop(word) for word in ("token", "ca", "patience") if word in how}
            )
            self._replica = Replica(opened, line, name, **how)
            self._loop = asyncio.get_running_loop()
            self._started.set()
            try:
                await self._replica.run(once=self._once)
            except HeadraceError as error:
                self.error = error

    @property
    def state(self) -> ReplicaState:
        return self._replica.state

    def reaches(self, index: int) -> None:
        until(lambda: self.state.next_index >= index or not self._thread.is_alive())
        assert self.state.next_index >= index, self.error

    def ended(self) -> HeadraceError | None:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        return self.error

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._replica.stop)
        self.ended()


@contextmanager
def replica(store: Path, url: str, name: str = "s", **how: Any) -> Iterator[Running]:
    running = Running(store, url, name, **how)
    try:
        yield running
    finally:
        running.stop()
