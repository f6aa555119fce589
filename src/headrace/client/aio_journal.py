"""A journal on a node, for asyncio: the verbs of an embedded journal, awaited.

jobs = await store.journal("pages")
await jobs.put("https://example.com/a", priority=10)
job = await jobs.next("example.com", lease="2h", wait="1m")
if job:
    await jobs.done(job)
"""

from __future__ import annotations

import msgspec

from headrace.client.aio_jobs import AsyncJobVerbs
from headrace.client.aio_values import AsyncValueVerbs
from headrace.client.job_calls import ASYNC_DESK
from headrace.client.journal_line import JournalLine
from headrace.client.node_line import NodeLine, path_of
from headrace.client.value_listener import ValueListener
from headrace.journal.job import Desk
from headrace.journal.journal import Stats
from headrace.journal.settings import JournalSettings


class AsyncJournal(AsyncJobVerbs, AsyncValueVerbs):
    def __init__(self, line: JournalLine, settings: JournalSettings, desk: Desk) -> None:
        """Use `AsyncStore.journal`."""
        self.name = line.name
        self.settings = settings
        self._line = line
        self._desk = desk
        self._listeners: set[ValueListener] = set()

    @classmethod
    async def open(
        cls, node: NodeLine, name: str, settings: JournalSettings | None, desk: Desk = ASYNC_DESK
    ) -> AsyncJournal:
        """Make the journal, unless it is there. `desk` takes back the jobs that are given out."""
        body = b"" if settings is None else msgspec.json.encode(settings.checked())
        path = path_of("journals", name)
        await node.surely(lambda: node.ask("PUT", path, body))
        line = JournalLine(node, name)
        stored = await line.send("GET", "settings", again=True)
        return cls(line, msgspec.json.decode(stored, type=JournalSettings), desk)

    async def stats(self) -> Stats:
        return msgspec.json.decode(await self._line.send("GET", "stats", again=True), type=Stats)

    @property
    def closed(self) -> bool:
        return self._line.closed

    async def close(self) -> None:
        """Nothing more is asked, and nobody is told of changes any more."""
        self._line.closed = True
        while self._listeners:
            self._listeners.pop().stop()

    async def __aenter__(self) -> AsyncJournal:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
