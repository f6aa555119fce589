"""The threads of a node: for what touches the disk, and apart from them for what may wait for long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from headrace.kernel.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")
_DISK_THREADS = 16
_WAITING_THREADS = 64


class Pools:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._disk = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="headrace-disk")
        self._patient = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="headrace-wait")
        self._waiting = 0

    async def do(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do something that may touch the disk, while the loop goes on."""
        return await self._loop.run_in_executor(self._disk, partial(work, *arguments, **named))

    async def wait(self, work: Callable[[], T], undo: Callable[[T], None]) -> T:
        """The same for what may wait for long: only so many may at a time.

        If whoever asked goes meanwhile, `undo` gets what came of it.
        """
        if self._waiting >= _WAITING_THREADS:
            raise Busy(f"{_WAITING_THREADS} requests wait for jobs already: try again later")
        self._waiting += 1
        waiting = self._loop.run_in_executor(self._patient, work)
        waiting.add_done_callback(self._waited)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:  # whoever asked has gone: what was found is given back
            waiting.add_done_callback(lambda done: self._undo(done, undo))
            raise

    def close(self) -> None:
        self._disk.shutdown(wait=True)
        self._patient.shutdown(wait=False)

    def _waited(self, done: asyncio.Future[Any]) -> None:
        self._waiting -= 1

    def _undo(self, done: asyncio.Future[T], undo: Callable[[T], None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._disk.submit(undo, done.result())
