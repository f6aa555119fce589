"""The node: one process that serves one store, to everybody who asks.

It owns a desk for each stream that somebody uses, the journals that are open, and a pool of threads for what
touches the disk. The event loop only passes things on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from headrace.journal.engine import LOG_DIRECTORY
from headrace.journal.journal import Journal
from headrace.journal.settings import JournalSettings
from headrace.kernel.errors import Busy, Closed, HeadraceError, IsReplica, NoPermission, NotFound
from headrace.log.log import Log
from headrace.server.fj import FjServer
from headrace.server.http_limits import HttpLimits
from headrace.server.journal_source import JournalSource
from headrace.server.pools import Pools
from headrace.server.publisher_lease import LEASE_S, PublisherLease
from headrace.server.stream_desk import StreamDesk
from headrace.server.unbroken import unbroken
from headrace.store import JOURNALS_DIRECTORY, Store
from headrace.stream.agreement import StreamConfig, Terms
from headrace.stream.stream import Stream

_logger = logging.getLogger("headrace.server")


class Following(Protocol):
    """A copy of another node's stream or journal (`client.replica.ReplicaState`)."""

    @property
    def phase(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def lag(self) -> int | None: ...


class Node:
    def __init__(self, store: Store, limits: HttpLimits | None = None, *, lease_s: float = LEASE_S) -> None:
        """`lease_s`: how long a publisher that holds a stream alone may be silent."""
        self.store = store
        self.limits = limits or HttpLimits()
        self.requests = 0
        self.refused: Counter[str] = Counter()
        """Requests that were refused, by the code of their error."""
        self.under_way = 0
        self.rest = asyncio.Event()
        """Set whenever something that was under way is over."""
        self._loop = asyncio.get_running_loop()
        self._desks: dict[str, StreamDesk] = {}
        self._lease_s = lease_s
        self._leases: dict[str, PublisherLease] = {}
        """Apart from the desks: a stream that grows gets a new desk, and keeps its publisher."""
        self._journals: dict[str, Journal] = {}
        self._fj: dict[str, FjServer] = {}
        self._reopening: set[asyncio.Task[Journal]] = set()
        self._sources: dict[str, JournalSource] = {}
        self._opening = asyncio.Lock()
        self._pools = Pools()
        self.in_pool, self.in_waiting_pool = self._pools.do, self._pools.wait
        self.replicas: dict[str, Following] = {}
        """How the copies of other nodes' streams are doing that this node keeps."""
        self.journal_replicas: dict[str, Following] = {}
        """The same of journals."""
        self.stopping = False
        self.endings: set[Callable[[], None]] = set()
        """Called when the node begins to stop: what goes on for long ends then."""

    @contextmanager
    def working(self) -> Iterator[None]:
        """While this block runs, a request is under way: stopping waits for it."""
        self.requests += 1
        self.begin_work()
        try:
            yield
        finally:
            self.end_work()

    def begin_work(self) -> None:
        """The same without a block: something is under way until `end_work`."""
        self.under_way += 1

    def end_work(self) -> None:
        self.under_way -= 1
        self.rest.set()

    async def stream(self, name: str, id: str | None = None) -> StreamDesk:  # noqa: A002
        """The desk of a stream that is there; NotFound if it is not, or has another id than this."""
        return _meant(self._desks.get(name) or await self._open_desk(name), id)

    def open_stream(self, name: str, id: str | None = None) -> StreamDesk | None:  # noqa: A002
        """The same, without waiting: None if it has no desk yet."""
        desk = self._desks.get(name)
        return None if desk is None else _meant(desk, id)

    @unbroken
    async def present_stream(self, name: str, id: str | None = None) -> StreamDesk:  # noqa: A002
        """The same for those who want to know what is there now, whoever has dropped or made it."""
        if await self._was_dropped(name):
            async with self._opening:
                self._check()
                await self._leave_dropped(name)
        return await self.stream(name, id)

    @unbroken
    async def _open_desk(self, name: str) -> StreamDesk:
        async with self._opening:
            self._check()
            if name not in self._desks:
                if name not in await self.in_pool(self.store.streams):
                    raise NotFound(f"there is no stream {name!r}: PUT /streams/{name} makes it")
                self._seat(name, await self.in_pool(self.store.stream, name))
            return self._desks[name]

    def _seat(self, name: str, stream: Stream) -> None:
        """Give a stream its desk."""
        self._desks[name] = StreamDesk(stream, self._lease(name))

    def _check_free(self, name: str, who: str | None = None) -> None:
        lease = self._leases.get(name)
        if lease is not None:
            lease.check_free(who)

    def _lease(self, name: str) -> PublisherLease:
        if name not in self._leases:
            self._leases[name] = PublisherLease(name, self._loop.time, self._lease_s)
        return self._leases[name]

    @unbroken
    async def ensure_stream(self, name: str, config: StreamConfig, *, may_change: bool = True) -> bool:
        """Whether it was made now. Without `may_change` it has to be there, as it is asked for."""
        async with self._opening:
            self._check()
            names = await self.in_pool(self.store.streams)
            known = name in names
            if not known:
                self._check_new("stream", name, len(names), may_change)
            stream = await self.in_pool(self.store.ensure, name, config)
            await self._leave_dropped(name)
            if stream.schema.equals(stream.log.schema):
                await self.in_pool(stream.close)  # its desk has it open in its own way
            elif may_change:
                await self._grow(name, stream)
            else:
                await self.in_pool(stream.close)
                raise NoPermission(f"the stream {name!r} would get new fields: that needs create:{name}")
            return not known

    @unbroken
    async def make_stream(self, name: str, terms: Terms, *, may_change: bool = True) -> bool:
        """Make it by these terms, unless it is there; whether it was made now."""
        async with self._opening:
            self._check()
            names = await self.in_pool(self.store.streams)
            if name not in names:
                self._check_new("stream", name, len(names), may_change)
            made = await self.in_pool(self.store.make, name, terms)
            await self._leave_dropped(name)
            return made

    @unbroken
    async def grow_stream(self, name: str, terms: Terms, who: str | None = None) -> None:
        """Readers of a stream that grows end, and come again. `who` holds the publisher's lease."""
        async with self._opening:
            self._check()
            self._check_free(name, who)
            await self._close_desk(name)
            await self.in_pool(self.store.grow, name, terms)

    @unbroken
    async def reopen_stream(self, name: str) -> None:
        """It was changed by somebody else: readers end, come again, and see it as it is."""
        async with self._opening:
            await self._close_desk(name)

    @unbroken
    async def drop_stream(self, name: str) -> None:
        async with self._opening:
            self._check()
            self._check_free(name)
            await self._close_desk(name)
            await self.in_pool(self.store.drop, name)
            self._leases.pop(name, None)

    async def _leave_dropped(self, name: str) -> None:
        """Close the desk of a stream that another process has dropped; there may be a new one of its name."""
        if await self._was_dropped(name):
            await self._close_desk(name)

    async def _was_dropped(self, name: str) -> bool:
        """Whether there is a desk, but not its stream any more."""
        desk = self._desks.get(name)
        try:
            return desk is not None and desk.log.meta.id != (await self.in_pool(self.store.meta, name)).id
        except NotFound:
            return True

    async def _close_desk(self, name: str) -> None:
        desk = self._desks.pop(name, None)
        if desk is not None:
            await desk.close()

    async def _grow(self, name: str, stream: Stream) -> None:
        """A stream that has new fields gets a new desk; readers of the old one end, and come again."""
        await self._close_desk(name)
        try:
            await self.in_pool(lambda: stream.publisher().close())  # which writes down that it has grown
        except HeadraceError:
            await self.in_pool(stream.close)
            raise
        self._seat(name, stream)

    async def journal(self, name: str) -> Journal:
        journal = self._journals.get(name)
        return journal if journal is not None and journal.usable else await self._find_journal(name)

    @unbroken
    async def _find_journal(self, name: str) -> Journal:
        async with self._opening:
            self._check()
            if not await self.in_pool(self.store.has_journal, name):
                raise NotFound(f"there is no journal {name!r}: PUT /journals/{name} makes it")
            return await self._open_journal(name)

    async def _open_journal(self, name: str, settings: JournalSettings | None = None) -> Journal:
        """It may have failed, and be another object now: then those who speak FJ go over to that."""
        journal = self._journals[name] = await self.in_pool(self.store.journal, name, settings)
        server = self._fj.get(name)
        if server is not None and server.journal is not journal:
            self._fj[name] = await server.hand_over(journal)
        return journal

    @unbroken
    async def journal_source(self, name: str) -> JournalSource:
        """A journal as the source of copies. It may be a copy itself."""
        try:
            engine = (await self.journal(name)).engine
        except IsReplica:
            engine = None
        async with self._opening:
            self._check()
            if name not in self._sources:
                path = self.store.path / JOURNALS_DIRECTORY / name / LOG_DIRECTORY
                log = await self.in_pool(Log.open, path, read_only=True)
                self._sources[name] = JournalSource(name, log)
            self._sources[name].engine = engine
            return self._sources[name]

    @unbroken
    async def ensure_journal(
        self, name: str, settings: JournalSettings | None = None, *, may_change: bool = True
    ) -> bool:
        """Whether it was made now. `settings`, if given, replace what it had, unless it is in use."""
        async with self._opening:
            self._check()
            known = await self.in_pool(self.store.has_journal, name)
            if not known:
                names = await self.in_pool(self.store.journals)
                self._check_new("journal", name, len(names), may_change)
            elif settings is not None and not may_change:
                raise NoPermission(f"the journal {name!r} is there: its settings need the permission create")
            await self._open_journal(name, settings)
            return not known

    async def fj(self, name: str) -> FjServer:
        """What speaks FJ for a journal, over whichever connections."""
        journal = await self.journal(name)
        if name not in self._fj:
            self._fj[name] = FjServer.begin(journal)
            self._fj[name].failed = partial(self._reopen_soon, name)
        return self._fj[name]

    def _reopen_soon(self, name: str) -> None:
        """For those who speak FJ, and do not ask the node for the journal each time."""
        task = self._loop.create_task(self.journal(name))
        self._reopening.add(task)
        task.add_done_callback(self._reopened)

    def _reopened(self, task: asyncio.Task[Journal]) -> None:
        self._reopening.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("a journal that failed cannot be opened yet: %s", error)

    async def stop_fj(self) -> None:
        """Answer what was taken, and end all connections that speak FJ."""
        await asyncio.gather(*(server.stop() for server in self._fj.values()))

    @property
    def desks(self) -> list[StreamDesk]:
        return list(self._desks.values())

    @property
    def journals(self) -> list[Journal]:
        return list(self._journals.values())

    @property
    def sources(self) -> list[JournalSource]:
        return list(self._sources.values())

    def wake_followers(self) -> None:
        """Those who wait for entries look again, and see that the node is stopping."""
        for desk in self.desks:
            desk.end_followers()
        for source in self.sources:
            source.end()
        for end in list(self.endings):
            end()

    async def close(self) -> None:
        """Finish what was taken, then close everything."""
        self.stopping = True
        async with self._opening:  # what was begun for those who have gone ends first
            pass
        await asyncio.gather(*(desk.close() for desk in self._desks.values()))
        await asyncio.gather(*(source.close() for source in self._sources.values()))
        await self.in_pool(self.store.close)
        self._pools.close()

    def _check_new(self, what: str, name: str, there: int, may_change: bool) -> None:
        if not may_change:
            raise NoPermission(f"there is no {what} {name!r}, and making it needs create:{name}")
        if there >= self.limits.streams:
            raise Busy(f"there are {there} {what}s, which is as many as may be: drop some, or allow more")

    def _check(self) -> None:
        if self.stopping:
            raise Closed("this node is stopping: try again later, or elsewhere")


def _meant(desk: StreamDesk, id: str | None) -> StreamDesk:  # noqa: A002
    if id is not None and id != desk.stream.log.meta.id:
        name = desk.stream.name
        raise NotFound(f"the stream {name!r} was dropped, and there is another one now: open it again")
    return desk
