"""Calls: each verb written once, as a request and how to read its reply.

A call knows no socket. The blocking client sends it and waits, the async one awaits, a pipeline queues
it up. So a verb means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from headrace.journal.errors import BadRequest
from headrace.journal.job import Desk
from headrace.kernel.clock import Clock
from headrace.kernel.durations import Duration, microseconds
from headrace.wire.fj import PERSIST, Reply, Request

T = TypeVar("T")


class Call(NamedTuple, Generic[T]):
    request: Request
    """Its identifier is given when it is sent."""
    read: Callable[[Reply], T]


class Pause(NamedTuple):
    """A step of a longer talk: wait for a push about the key, at most until then."""

    key: bytes
    until_us: int


class Words:
    """What calls are made of: the time, and to whom jobs are given back."""

    def __init__(self, clock: Clock, desk: Desk | None = None) -> None:
        self._clock = clock
        self._desk = desk
        self._last_us = 0

    def now_us(self) -> int:
        """Larger than ever before: a clock that is set back must not make our next SET an outdated one.

        Nor one of the same time as the last, of which nobody could tell which was later.
        """
        self._last_us = now = max(self._clock.now_us(), self._last_us + 1)
        return now

    def stamp(self, given: int | None) -> int:
        """The timestamp of a write: now, unless one is given."""
        if given is None:
            return self.now_us()
        if not 0 <= given < 1 << 63:
            raise BadRequest(f"a timestamp is microseconds since 1970, not {given}")
        return given

    def moment(self, after: Duration | None) -> int | None:
        return None if after is None else self._clock.now_us() + microseconds(after)


def persisted(persist: bool) -> int:
    return PERSIST if persist else 0
