"""A connection that speaks FJ on a node: what it has half sent counts as held, and has to go on in time.

Requests are done as soon as they are whole, so what is held is the part of one that has come. A peer that
does not go on with it is cut off, and so is one that holds some while all connections hold too much.
"""

from __future__ import annotations

import asyncio

from headrace.server.fj import FjServer
from headrace.server.fj_connection import Connection
from headrace.server.http_door import Visit
from headrace.server.http_limits import HttpLimits


class FjVisit(Connection):
    def __init__(self, server: FjServer, visit: Visit, limits: HttpLimits) -> None:
        super().__init__(server)
        self._visit = visit
        self._limits = limits
        self._arrived = 0
        self._held = 0
        """What the visit counts: of the last request, which is not whole."""
        self._timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """The visit holds it already."""
        super().data_received(data)
        before, self._held = self._held + len(data), self._parser.buffered_bytes
        self._arrived += len(data)
        self._visit.let_go_of(before - self._held)
        if self._held and self._visit.crowded:
            self.abort()  # it comes again, when there may be room
        elif self._held or self._timer is not None:
            self._await_rest(whole=self._held < before)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(error)

    def _await_rest(self, *, whole: bool) -> None:
        """A request that is half sent has to go on; `whole`: one has become whole just now."""
        if self._timer is not None and (whole or not self._held):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._held:
            look = asyncio.get_running_loop().call_later
            self._timer = look(self._limits.body_s, self._look, self._arrived)

    def _look(self, arrived: int) -> None:
        self._timer = None
        if not self._paused and self._arrived - arrived < self._limits.progress_bytes:
            self.abort()
        else:
            self._await_rest(whole=False)
