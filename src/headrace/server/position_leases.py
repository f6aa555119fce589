"""Leases of named positions: which reader elsewhere has a position, for a while.

Over a path the position's file is locked while its reader has it open. A reader elsewhere holds a lease
instead, and keeps it by saying so again. Leases are not on the disk: after a node starts anew, the reader
who comes first goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.kernel.errors import WriterTaken

LEASE_S = 10.0


class PositionLeases:
    def __init__(self, now: Callable[[], float], lease_s: float = LEASE_S) -> None:
        self._now = now
        self._lease_s = lease_s
        self._held: dict[tuple[str, str], tuple[str, float]] = {}

    def take(self, stream: str, position: str, who: str) -> None:
        """Hold it from now on, or WriterTaken."""
        now = self._now()
        self._held = {place: lease for place, lease in self._held.items() if lease[1] > now}
        holder = self._held.get((stream, position))
        if holder is not None and holder[0] != who:
            raise WriterTaken(
                f"the position {position!r} of stream {stream!r} is in use by another reader: close it first"
            )
        self._held[stream, position] = who, now + self._lease_s

    def release(self, stream: str, position: str, who: str) -> None:
        if self._held.get((stream, position), ("", 0.0))[0] == who:
            del self._held[stream, position]
