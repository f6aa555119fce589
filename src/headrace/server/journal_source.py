"""A journal of a node as the source of copies: its log, and who waits for it to move.

Copies get what is in the log. So while there are any, the journal pours its tail soon, and before a copy is
answered everything is poured that was acknowledged before it asked. One thread watches the log, whoever
writes to it: the journal itself or, if that is a copy, its follower.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import AbstractContextManager, closing, nullcontext

from headrace.journal.copy import check_whole
from headrace.journal.engine import Engine
from headrace.journal.replay import STATE
from headrace.log.cursor import Cursor
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.positions import read_positions
from headrace.server.stream_desk import Copying, begun

_logger = logging.getLogger("headrace.server")
_LOOK_S = 0.5
"""How often the thread looks whether it is over."""


class JournalSource:
    noun = "journal"

    def __init__(self, name: str, log: Log) -> None:
        """`log` is open to be read only, and closed with this."""
        self.name = name
        self.log = log
        self.engine: Engine | None = None
        """That of the journal; None if it is a copy itself."""
        self.copies: set[Copying] = set()
        self.ending = False
        """Whether copies should not wait for more."""
        self._disk = Disk()
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._watched: Cursor | None = None
        self._watching: threading.Thread | None = None

    # --- in the loop

    def copied(self) -> AbstractContextManager[None]:
        """While this block runs, a copy is being sent to."""
        return nullcontext() if self.engine is None else self.engine.copied()

    def next_move(self) -> asyncio.Event:
        """Set when the log moves after now, or it ends: taken before looking, waited for after."""
        if self._watching is None:
            self._watching = begun(self._watch, "headrace-watch")
        return self._moved

    def end(self) -> None:
        """Copies get what is there, and then no more."""
        self.ending = True
        self._notify()

    async def close(self) -> None:
        self.end()
        if self._watched is not None:
            self._watched.stop()
        if self._watching is not None:
            await self._loop.run_in_executor(None, self._watching.join)
        self.log.close()

    def _notify(self) -> None:
        """Wake those who wait now; those who come later wait for the next time."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # --- in any thread

    def pour(self) -> None:
        """All that was acknowledged is in the log; NotWhole if it is a copy that lacks something itself."""
        if self.engine is not None:
            self.engine.pour()
        else:
            check_whole(self._disk, self.log.path, self.log.meta)

    def swept(self) -> int:
        """No event before it counts any more."""
        return read_positions(self._disk, self.log.path).get(STATE, 0)

    def _watch(self) -> None:
        """Whatever fails, copies go on: they are woken, and watching begins again."""
        told = ""
        while not self.ending:
            try:
                self._watch_files()
            except Exception as error:
                if str(error) != told:
                    _logger.error("the journal %s cannot be watched now: %s", self.name, error)
                told = str(error)
                time.sleep(_LOOK_S)
                self._soon_notify()

    def _watch_files(self) -> None:
        with closing(self.log.cursor(self.log.next_index)) as cursor:
            self._watched = cursor
            while not self.ending:
                if cursor.wait(_LOOK_S):
                    self._soon_notify()

    def _soon_notify(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._notify)
