"""A journal on a node, with the verbs of one in a directory: those of the async client, waited for.

with store.journal("pages").next("example.com", lease="2h", wait="1m") as job:
    if job:
        work(job.resource)
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from headrace.client.aio_journal import AsyncJournal
from headrace.client.loop_thread import LoopThread
from headrace.client.node_line import NodeLine
from headrace.client.value_listener import Told
from headrace.journal.journal import JobInfo
from headrace.journal.settings import JournalSettings
from headrace.journal.value import Type, Value

P = ParamSpec("P")
T = TypeVar("T")


def _waited(
    verb: Callable[Concatenate[AsyncJournal, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[RemoteJournal, P], T]:
    @functools.wraps(verb)
    def waited(self: RemoteJournal, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(verb(self._journal, *args, **kwargs))

    return waited


class RemoteJournal:
    def __init__(self, loop: LoopThread, node: NodeLine, name: str, settings: JournalSettings | None) -> None:
        """Use `RemoteStore.journal`."""
        self.name = name
        self._loop = loop
        self._journal = loop.run(AsyncJournal.open(node, name, settings, self))
        self._telling: ThreadPoolExecutor | None = None

    put = _waited(AsyncJournal.put)
    put_batch = _waited(AsyncJournal.put_batch)
    next = _waited(AsyncJournal.next)
    next_batch = _waited(AsyncJournal.next_batch)
    done = _waited(AsyncJournal.done)
    done_batch = _waited(AsyncJournal.done_batch)
    fail = _waited(AsyncJournal.fail)
    extend = _waited(AsyncJournal.extend)
    cancel = _waited(AsyncJournal.cancel)
    redrive = _waited(AsyncJournal.redrive)
    redrive_as = _waited(AsyncJournal.redrive_as)
    stats = _waited(AsyncJournal.stats)

    set = _waited(AsyncJournal.set)
    get = _waited(AsyncJournal.get)
    probe = _waited(AsyncJournal.probe)
    delete = _waited(AsyncJournal.delete)
    add = _waited(AsyncJournal.add)
    flip = _waited(AsyncJournal.flip)
    resize = _waited(AsyncJournal.resize)
    lock = _waited(AsyncJournal.lock)
    unlock = _waited(AsyncJournal.unlock)
    rename = _waited(AsyncJournal.rename)
    link = _waited(AsyncJournal.link)

    def jobs(self) -> Iterator[JobInfo]:
        """All jobs: pending, leased and dead ones."""
        return self._items(self._journal.job_pages())

    def range(self, low: str = "", high: str | None = None, count: int | None = None) -> Iterator[Value]:
        """The values with keys from `low` to `high`, both included, in the order of the keys."""
        return self._items(self._journal.range_pages(low, high, count))

    def match(self, pattern: str, count: int | None = None) -> Iterator[Value]:
        """The values whose keys match a regular expression (RE2), anywhere unless it is anchored."""
        return self._items(self._journal.match_pages(pattern, count))

    def listen(self, key: str, told: Told) -> Callable[[], None]:
        """Call `told` with the key and its new type whenever the value changes; void when it is gone.

        It is called in a thread of its own, one change after the other. The result ends it. After the
        connection broke it is called once with the type as it is then.
        """
        telling = self._telling = self._telling or ThreadPoolExecutor(1, "headrace-told")

        def tell(changed: str, kind: Type) -> None:
            telling.submit(told, changed, kind)

        stop = self._loop.run(self._journal.listen(key, tell))
        return lambda: self._loop.call(stop)

    @property
    def settings(self) -> JournalSettings:
        return self._journal.settings

    @property
    def closed(self) -> bool:
        return self._journal.closed

    def close(self) -> None:
        """Nothing more is asked, and nobody is told of changes any more. The node keeps the journal."""
        self._loop.run(self._journal.close())
        if self._telling is not None:
            self._telling.shutdown(wait=False)

    def __enter__(self) -> RemoteJournal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _items(self, pages: AsyncIterator[builtins.list[T]]) -> Iterator[T]:
        try:
            while (page := self._loop.run(_next_page(pages))) is not None:
                yield from page
        finally:
            self._loop.run(_end(pages))


async def _next_page(pages: AsyncIterator[list[T]]) -> list[T] | None:
    return await anext(pages, None)


async def _end(pages: AsyncIterator[Any]) -> None:
    if hasattr(pages, "aclose"):
        await pages.aclose()
