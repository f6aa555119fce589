"""The lease of a stream's publisher: who alone may publish for a while.

A program that wants to know the index of each entry at once has to be the only one who publishes. It takes
the lease, and keeps it by saying so again; whoever has none may publish while nobody holds it. One that lost
its lease to another publishes nothing any more, however late its requests come.

The lease is not on the disk. A node that starts anew gives it to the first who says that it is his; that he
really is the one who goes on is told by the index that his next batch must get.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.kernel.errors import Fenced
from headrace.stream.errors import PublisherTaken

LEASE_S = 30.0
_FENCED_KEPT = 256


class PublisherLease:
    def __init__(self, stream: str, now: Callable[[], float], lease_s: float = LEASE_S) -> None:
        self.lease_s = lease_s
        self._stream = stream
        self._now = now
        self._holder: str | None = None
        self._until = 0.0
        self._fenced: deque[str] = deque(maxlen=_FENCED_KEPT)

    def take(self, who: str, *, take_over: bool = False) -> None:
        """Hold it from now on, or PublisherTaken."""
        if who in self._fenced:
            raise self._lost()
        if self._held and self._holder != who:
            if not take_over:
                raise self._taken()
            assert self._holder is not None
            self._fenced.append(self._holder)
        self._holder, self._until = who, self._now() + self.lease_s

    def check(self, who: str | None) -> None:
        """Whether `who` may publish now; None is anybody without a lease. Who holds it keeps it longer."""
        if who is not None:
            if who in self._fenced or (self._held and self._holder != who):
                raise self._lost()
            self.take(who)
        elif self._held:
            raise self._taken()

    def check_free(self, who: str | None = None) -> None:
        """PublisherTaken, if anybody else than `who` holds it."""
        if self._held and self._holder != who:
            raise self._taken()

    def release(self, who: str) -> None:
        if self._holder == who:
            self._holder = None

    @property
    def _held(self) -> bool:
        return self._holder is not None and self._now() < self._until

    def _taken(self) -> PublisherTaken:
        return PublisherTaken(
            f"stream {self._stream!r} has a publisher that holds it alone: wait until it is closed, "
            "or take it over"
        )

    def _lost(self) -> Fenced:
        return Fenced(f"another publisher has taken the stream {self._stream!r} over: this one has ended")
