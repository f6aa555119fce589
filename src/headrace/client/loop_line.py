"""A line of a blocking client over a connection that the loop's thread has: TLS is done there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace.client.awaited import Link
from headrace.client.loop_thread import LoopThread
from headrace.wire.fj import Reply, Request


class LoopLine:
    """Not for two threads at once; whoever owns it has a lock."""

    def __init__(self, loop: LoopThread, link: Link) -> None:
        self._loop = loop
        self._link = link
        self._pushes: dict[bytes, int] = {}

    @property
    def pushes(self) -> dict[bytes, int]:
        """Those that `wait` has found."""
        return self._pushes

    @property
    def told(self) -> bool:
        return self._link.told

    @property
    def closed(self) -> bool:
        return self._link.closed

    def ask(self, request: Request) -> Reply:
        return self._loop.run(self._link.ask(request))

    def ask_many(self, requests: Sequence[Request], answers: dict[int, Reply]) -> None:
        """Send all of them, and put the reply of the n-th into `answers[n]` as it comes."""
        self._loop.run(self._ask_many(requests, answers))

    def wait(self, seconds: float) -> None:
        """Wait until anything arrives that nobody asked for, or the time is over."""
        self._pushes |= self._loop.run(self._pushed(seconds))

    def check_open(self) -> None:
        self._link.check_open()

    def close(self) -> None:
        self._loop.run(self._close())

    # --- in the loop's thread

    async def _ask_many(self, requests: Sequence[Request], answers: dict[int, Reply]) -> None:
        async def one(number: int, request: Request) -> None:
            answers[number] = await self._link.ask(request)

        asking = [asyncio.ensure_future(one(number, request)) for number, request in enumerate(requests)]
        failed = [each for each in await asyncio.gather(*asking, return_exceptions=True) if each is not None]
        if failed:
            raise failed[0]

    async def _pushed(self, seconds: float) -> dict[bytes, int]:
        if not self._link.pushes:
            await self._link.wait(max(0.0, seconds))
        taken = dict(self._link.pushes)
        self._link.pushes.clear()
        return taken

    async def _close(self) -> None:
        self._link.close()
