"""Partings: how a server ends a connection, so that what it said last arrives.

A socket that is closed with something unread, or that gets something after it was closed, resets the line,
and what was on its way to the peer is lost with it: answers, or the very refusal. So it ends in steps:

    what was written leaves ──► the end of it is told ──► what comes is thrown away ──► closed
                                (half of it is closed)     until the peer closes, too, is quiet for QUIET_S,
                                                           or has sent on for LONGEST_S or MOST_BYTES

Over TLS no half can be closed: a peer learns of the end only when all of it is closed, that much later.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

QUIET_S = 0.25
"""What was sent before the end was told arrives within that, or the line is a very long one."""
LONGEST_S = 2.0
MOST_BYTES = 64 << 20
"""As much as a body may have: those who send all of one before they look for an answer get it."""
_TURNED_AWAY_MAX = 256
"""So many who were not let in are parted from at a time. They count for no limit, and others are cut off."""


class Partings:
    """All connections of a server that are being ended."""

    def __init__(self) -> None:
        self._under_way: set[_Parting] = set()
        self._turned_away = 0
        self._none = asyncio.Event()
        self._none.set()

    def part(self, transport: asyncio.Transport) -> None:
        """End a connection. Its protocol hears no more of it than that it is lost, in the end."""
        if not is_ending(transport):
            self._begin(_Parting(transport, self))

    def turn_away(self, transport: asyncio.Transport, word: bytes) -> None:
        """Tell somebody who has just connected why they cannot stay."""
        transport.write(word)
        if self._turned_away < _TURNED_AWAY_MAX:
            self._turned_away += 1
            self._begin(_TurningAway(transport, self))
        else:
            transport.close()

    def at_close(self, transport: asyncio.Transport) -> Parted:
        """The same connection, for a protocol of others that closes it: then it is parted from."""
        return Parted(transport, self)

    async def over(self) -> None:
        """Wait until none is under way."""
        await self._none.wait()

    def _begin(self, parting: _Parting) -> None:
        self._under_way.add(parting)
        self._none.clear()
        parting.begin()

    def ended(self, parting: _Parting) -> None:
        if parting in self._under_way:
            self._under_way.discard(parting)
            self._turned_away -= isinstance(parting, _TurningAway)
        if not self._under_way:
            self._none.set()


def is_ending(transport: asyncio.Transport) -> bool:
    """Whether nothing can be written to it any more."""
    return transport.is_closing() or isinstance(transport.get_protocol(), _Parting)


class Parted:
    """A transport that ends the connection in steps when it is closed."""

    def __init__(self, transport: asyncio.Transport, partings: Partings) -> None:
        self._transport = transport
        self._partings = partings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return is_ending(self._transport)

    def close(self) -> None:
        self._partings.part(self._transport)


class _Parting(asyncio.Protocol):
    """Takes the place of a connection's protocol."""

    def __init__(self, transport: asyncio.Transport, partings: Partings) -> None:
        self._transport = transport
        self._partings = partings
        self._before = transport.get_protocol()
        self._loop = asyncio.get_running_loop()
        self._came = 0
        self._left_at: float | None = None
        """When all that was written had left."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._transport.set_protocol(self)
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the peer has gone, of which we hear in a moment
                self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()
        self._look(0)

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        if self._came > MOST_BYTES:
            self._close()

    def pause_writing(self) -> None:
        """Whoever was there before watches whether what was written is taken."""
        self._before.pause_writing()

    def resume_writing(self) -> None:
        self._before.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._partings.ended(self)
        self._before.connection_lost(error)

    def _look(self, came_before: int) -> None:
        now = self._loop.time()
        if self._left_at is None:
            if not self._transport.get_write_buffer_size():
                self._left_at = now
        elif self._came == came_before or now - self._left_at >= LONGEST_S:
            self._close()
            return
        self._timer = self._loop.call_later(QUIET_S, self._look, self._came)

    def _close(self) -> None:
        self._transport.close()
        self._partings.ended(self)  # TLS may wait for the peer to say that it has heard it


class _TurningAway(_Parting):
    """Of somebody who was not let in."""
