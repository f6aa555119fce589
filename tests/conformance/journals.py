"""The three ways to a journal that the suite runs over: in a directory, on a node, on a node with asyncio."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.server.http_node import served

import headrace as hr
from headrace.client import aio
from headrace.client.aio import AsyncJournal, AsyncStore
from headrace.client.loop_thread import LoopThread
from headrace.journal.job import Job

WAYS = ("embedded", "remote", "async")


class Journals:
    """Journals of one store, each new."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._numbers = itertools.count()

    def new(self, **settings: Any) -> Any:
        given = hr.JournalSettings(**settings) if settings else None
        return self.store.journal(f"j{next(self._numbers)}", given)


@contextmanager
def journals_of(way: str, place: Path) -> Iterator[Journals]:
    if way == "embedded":
        with hr.open(place) as store:
            yield Journals(store)
    else:
        with served(place) as node, _connected(way, f"http://127.0.0.1:{node.ask.port}") as remote:
            yield Journals(remote)


@contextmanager
def _connected(way: str, url: str) -> Iterator[Any]:
    if way == "remote":
        with hr.connect(url) as store:
            yield store
        return
    loop = LoopThread.shared()
    waited = WaitedStore(loop, aio.connect(url))
    try:
        yield waited
    finally:
        waited.close()


class WaitedStore:
    """An async store, whose verbs are waited for."""

    def __init__(self, loop: LoopThread, store: AsyncStore) -> None:
        self._loop = loop
        self._store = store

    def journal(self, name: str, settings: hr.JournalSettings | None = None) -> WaitedJournal:
        return WaitedJournal(self._loop, self._loop.run(self._store.journal(name, settings)))

    def journals(self) -> list[str]:
        return self._loop.run(self._store.journals())

    def close(self) -> None:
        self._loop.run(self._store.close())


class WaitedJournal:
    def __init__(self, loop: LoopThread, journal: AsyncJournal) -> None:
        self._loop = loop
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._journal, name)
        return self._waited(verb) if callable(verb) else verb

    def _waited(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            asked = verb(*arguments, **named)
            if not inspect.isawaitable(asked):
                return iter(self._loop.run(_all(asked)))
            found = self._loop.run(asked)
            if isinstance(found, Job):
                found._desk = self
            return (lambda: self._loop.call(found)) if callable(found) else found

        return call

    def __enter__(self) -> WaitedJournal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]
