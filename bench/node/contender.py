"""What every server does in the benchmarks of the node, through its Python client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

from bench.node.entries import BYTES, Kind

OnEntry = Callable[[bytes], None]
"""Is told what every entry of a stream of bytes holds."""


def nothing() -> None:
    """Nobody waits."""


class Contender(Protocol):
    """Connections are opened and closed by each call, outside of the time that it answers."""

    @property
    def name(self) -> str: ...

    def make(self, stream: str, kind: Kind) -> None: ...

    def publish(
        self, stream: str, kind: Kind, entries: Sequence[Any], ready: Callable[[], None] = nothing
    ) -> float:
        """Publish each entry by a call of its own, until the last is acknowledged; seconds.

        `ready` is called once the connection is there.
        """
        ...

    def publish_paced(self, stream: str, pace: Pace) -> None:
        """Publish entries when they are due, to a stream of bytes."""
        ...

    def read(self, stream: str, kind: Kind, count: int) -> float:
        """Read so many entries that are there, as objects; seconds."""
        ...

    def follow(
        self, stream: str, kind: Kind, count: int, ready: Callable[[], None], on_entry: OnEntry | None
    ) -> None:
        """Wait for so many entries. `ready` is called once it is sure that none will be missed."""
        ...

    async def follower(self, stack: AsyncExitStack, stream: str, count: int) -> asyncio.Future[Any]:
        """A connection of its own that has got `count` entries of bytes, and waits for as many more."""
        ...


class Pace:
    """Entries that are due one after the other, from `begin` on; each holds the time when it was."""

    def __init__(self, count: int, pause_s: float) -> None:
        self._left = count
        self._pause_ns = int(pause_s * 1e9)
        self._due_ns = 0

    def begin(self) -> None:
        """The connection is there."""
        self._due_ns = time.monotonic_ns() + self._pause_ns

    @property
    def over(self) -> bool:
        return not self._left

    def due(self) -> list[bytes]:
        """All that are due by now."""
        found, now = [], time.monotonic_ns()
        while self._left and self._due_ns <= now:
            found.append(self._due_ns.to_bytes(8, "little").ljust(BYTES, b"."))
            self._due_ns += self._pause_ns
            self._left -= 1
        return found

    @property
    def rest_s(self) -> float:
        """Until the next one is."""
        return max(0.0, (self._due_ns - time.monotonic_ns()) / 1e9)


def late_us(entry: bytes) -> float:
    return (time.monotonic_ns() - int.from_bytes(entry[:8], "little")) / 1000
