"""How a journal gets along with Python: its collection of garbage, and its one lock.

Garbage is not looked for while many rows are made: none of them is any, and it would add a third to the time.

One thread runs Python at a time. Another that wants to waits 5 ms before it even asks, and has to again after
every call that waits for anything, so that a thread which works on for 20 ms in the background makes a
request of 0.1 ms take 10. So the background works in pieces, and lets others in between them.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator

PIECE = 500
"""Events or rows that the background looks at before it lets others in: less than a millisecond's work."""
_PAUSE_S = 0.0001
"""Long enough for a thread that waits to wake up. None at all would let this one in again before it has."""


def let_others_in() -> None:
    time.sleep(_PAUSE_S)


def pieces(count: int) -> Iterator[tuple[int, int]]:
    """Where each piece of so many begins and ends; between them, other threads have their turn."""
    for at in range(0, count, PIECE):
        if at:
            let_others_in()
        yield at, min(at + PIECE, count)


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
