"""Requests that were answered lately: one that comes again is answered as it was, not carried out again.

A client names a request (`Headrace-Request`) if it will send it again should no answer come. The second may
come while the first is still under way: it waits for the same answer. What failed is forgotten: it may be
tried. All of this is in memory, and the oldest go first: a client repeats only what does no harm if the node
was restarted meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

ANSWERS_MAX = 4096
ANSWER_BYTES_MAX = 4096


class Answered:
    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], asyncio.Future[bytes]] = OrderedDict()

    async def once(self, path: str, name: str | None, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """Do the work of a request; if the request has a name and was done, its answer."""
        if name is None:
            return await work()
        key = (path, name)
        doing = self._known.get(key)
        if doing is None:
            doing = self._known[key] = asyncio.ensure_future(work())
            doing.add_done_callback(lambda done: self._done(key, done))
            if len(self._known) > ANSWERS_MAX:
                self._known.popitem(last=False)
        return await asyncio.shield(doing)  # it goes on even if whoever asked has gone

    def _done(self, key: tuple[str, str], done: asyncio.Future[bytes]) -> None:
        failed = done.cancelled() or done.exception() is not None
        if failed or len(done.result()) > ANSWER_BYTES_MAX:
            self._known.pop(key, None)
