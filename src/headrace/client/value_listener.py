"""A listener to one value on a node: a response that goes on, and begins again when it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import msgspec

from headrace.client.journal_line import JournalLine, lines_of
from headrace.client.node_line import AWAY
from headrace.journal.requests import Listen
from headrace.journal.spelling import read_type
from headrace.journal.value import Type
from headrace.kernel.errors import HeadraceError

Told = Callable[[str, Type], None]
_logger = logging.getLogger("headrace.client")


class _Change(msgspec.Struct):
    type: str


class ValueListener:
    def __init__(self, line: JournalLine, wanted: Listen, key: str, told: Told) -> None:
        self._line = line
        self._wanted = wanted
        self._key = key
        self._told = told
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Return once every change will be told."""
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._go_on(begun))
        try:
            await begun
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _go_on(self, begun: asyncio.Future[None]) -> None:
        pause, attempts = self._line.node.patience.pause, 0
        try:
            while True:
                try:
                    async for kind in self._changes():
                        attempts = 0
                        if begun.done():
                            self._told(self._key, kind)
                        else:
                            begun.set_result(None)  # the first line: what it is now
                except AWAY:
                    if not begun.done() or self._line.closed:
                        raise
                attempts += 1
                await asyncio.sleep(pause.pause_s(attempts))
        except HeadraceError as error:
            if begun.done():
                _logger.warning("nobody is told of changes of %r any more: %s", self._key, error)
            else:
                begun.set_exception(error)

    async def _changes(self) -> AsyncIterator[Type]:
        async with self._line.reading(self._wanted.verb, self._wanted) as response:
            async for line in lines_of(response):
                if line:
                    yield read_type(msgspec.json.decode(line, type=_Change).type)
