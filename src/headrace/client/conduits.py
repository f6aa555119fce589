"""Conduits: connections to a node that carry bytes, for what is too quick or too much for requests.

Everything that uses a conduit is written once, with `await`. There are two kinds of them:

    PlainConduits   of the thread that uses them: nothing ever suspends, so that `drive` runs it to its end
    LoopConduits    of an event loop

A blocking client that reads and publishes on conduits of its own thread needs no other thread to be woken,
which costs more than the way to the node. The rest of it, requests now and then, is asked for in the thread
of a loop.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
_PIECE_BYTES = 1 << 18


class Conduit(Protocol):
    """One connection. It ends with an OSError, ConnectionLost, or NoAnswer if nothing came for too long."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the node's answer, by their names in lower case."""
        ...

    async def send(self, *parts: bytes | memoryview) -> None: ...

    async def receive(self) -> bytes:
        """Some bytes; b"" at the end."""
        ...

    async def receive_into(self, room: memoryview) -> int:
        """The same, to where they belong; how many."""
        ...

    def close(self) -> None: ...


class Conduits(Protocol):
    """How conduits are made, and time passes."""

    async def open(self, path: str, word: str, headers: Mapping[str, str]) -> Conduit:
        """A conduit that speaks `word` (see `client.upgrade`)."""
        ...

    async def rest(self, seconds: float) -> None: ...

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to be tried."""
        ...


def pieces(part: bytes | memoryview) -> Iterator[memoryview]:
    """A part in pieces, each of which has its own time to leave: a slow line is not a dead one."""
    view = memoryview(part)
    return (view[at : at + _PIECE_BYTES] for at in range(0, len(view), _PIECE_BYTES))


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run what never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise AssertionError("something here waited for a loop")
