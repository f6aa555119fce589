"""The node: one process that serves one store, to everybody who asks.

It owns a desk for each stream that somebody uses, the journals that are open, and a pool of threads for what
touches the disk. The event loop only passes things on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from headrace.journal.journal import Journal
from headrace.kernel.errors import Busy, Closed, HeadraceError, NotFound
from headrace.server.stream_desk import StreamDesk
from headrace.store import Store, StreamConfig
from headrace.stream.stream import Stream

P = ParamSpec("P")
T = TypeVar("T")
_DISK_THREADS = 16
_WAITING_THREADS = 64


class Node:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.requests = 0
        self.refused = 0
        self.under_way = 0
        self._loop = asyncio.get_running_loop()
        self._desks: dict[str, StreamDesk] = {}
        self._journals: dict[str, Journal] = {}
        self._opening = asyncio.Lock()
        self._pool = ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="headrace-disk")
        self._waiting_pool = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="headrace-wait")
        self._waiting = 0
        self.stopping = False

    async def in_pool(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do something that may touch the disk, while the loop goes on."""
        return await self._loop.run_in_executor(self._pool, partial(work, *arguments, **named))

    async def in_waiting_pool(self, work: Callable[[], T], undo: Callable[[T], None]) -> T:
        """The same for what may wait for long: only so many may at a time.

        If whoever asked goes meanwhile, `undo` gets what came of it.
        """
        if self._waiting >= _WAITING_THREADS:
            raise Busy(f"{_WAITING_THREADS} requests wait for jobs already: try again later")
        self._waiting += 1
        waiting = self._loop.run_in_executor(self._waiting_pool, work)
        waiting.add_done_callback(self._waited)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:  # whoever asked has gone: what was found is given back
            waiting.add_done_callback(lambda done: self._undo(done, undo))
            raise

    def _waited(self, done: asyncio.Future[Any]) -> None:
        self._waiting -= 1

    def _undo(self, done: asyncio.Future[T], undo: Callable[[T], None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._pool.submit(undo, done.result())

    async def stream(self, name: str) -> StreamDesk:
        """The desk of a stream that is there; NotFound if it is not."""
        desk = self._desks.get(name)
        if desk is not None:
            return desk
        async with self._opening:
            self._check()
            if name not in self._desks:
                if name not in await self.in_pool(self.store.streams):
                    raise NotFound(f"there is no stream {name!r}: PUT /streams/{name} makes it")
                self._desks[name] = StreamDesk(await self.in_pool(self.store.stream, name))
            return self._desks[name]

    async def ensure_stream(self, name: str, config: StreamConfig) -> bool:
        """Whether it was made now."""
        async with self._opening:
            self._check()
            known = name in await self.in_pool(self.store.streams)
            stream = await self.in_pool(self.store.ensure, name, config)
            if stream.schema.equals(stream.log.schema):
                await self.in_pool(stream.close)  # its desk has it open in its own way
            else:
                await self._grow(name, stream)
            return not known

    async def _grow(self, name: str, stream: Stream) -> None:
        """A stream that has new fields gets a new desk; readers of the old one end, and come again."""
        desk = self._desks.pop(name, None)
        if desk is not None:
            await desk.close()
        try:
            await self.in_pool(lambda: stream.publisher().close())  # which writes down that it has grown
        except HeadraceError:
            await self.in_pool(stream.close)
            raise
        self._desks[name] = StreamDesk(stream)

    async def journal(self, name: str) -> Journal:
        journal = self._journals.get(name)
        if journal is not None:
            return journal
        async with self._opening:
            self._check()
            if not await self.in_pool(self.store.has_journal, name):
                raise NotFound(f"there is no journal {name!r}: PUT /journals/{name} makes it")
            self._journals[name] = await self.in_pool(self.store.journal, name)
            return self._journals[name]

    async def ensure_journal(self, name: str) -> bool:
        async with self._opening:
            self._check()
            known = await self.in_pool(self.store.has_journal, name)
            self._journals[name] = await self.in_pool(self.store.journal, name)
            return not known

    @property
    def desks(self) -> list[StreamDesk]:
        return list(self._desks.values())

    @property
    def journals(self) -> list[Journal]:
        return list(self._journals.values())

    def wake_followers(self) -> None:
        """Those who wait for entries look again, and see that the node is stopping."""
        for desk in self.desks:
            desk.end_followers()

    async def close(self) -> None:
        """Finish what was taken, then close everything."""
        self.stopping = True
        await asyncio.gather(*(desk.close() for desk in self._desks.values()))
        await self.in_pool(self.store.close)
        self._pool.shutdown(wait=True)
        self._waiting_pool.shutdown(wait=False)

    def _check(self) -> None:
        if self.stopping:
            raise Closed("this node is stopping: try again later, or elsewhere")
