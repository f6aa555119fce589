"""Alertness: whether it pays to keep looking for what is expected, or to sleep until it comes.

To wake a thread that sleeps takes 20 to 50 µs on a virtual machine, at both ends of a line: more than a small
request takes. So who has lately been answered within a fraction of a millisecond looks again and again for
that long, and lets others run between two looks. Who is mistaken has wasted less than half a millisecond, and
the more often that happens, the sooner he sleeps at once.

Nobody looks where somebody else needs the core, perhaps the very one who is waited for: on a machine that has
only one, and for a while after a look in which others had it. Nor do the clients of a process in more than
one thread: they would keep Python's lock from each other.
"""

from __future__ import annotations

import os
import threading
import time

LOOK_S = 0.0003
"""So long it may be looked, each time."""
_WEIGHT = 0.1
"""Of the last wait in what waits usually take."""
_LONG_S = 4 * LOOK_S
"""As which a longer wait counts: one long pause does not make an answer slow."""
_one_core = len(os.sched_getaffinity(0)) < 2


class Alertness:
    """Of one thread that waits for the same kind of thing over and over."""

    __slots__ = ("_began", "_busy", "_looks", "_usual_s")

    def __init__(self) -> None:
        self._usual_s = 0.0
        self._looks = False
        self._began = self._busy = 0.0

    def begin(self) -> float:
        """A wait begins: until when to look, by the monotonic clock; 0.0 if it does not pay."""
        self._began = began = time.monotonic()
        self._looks = self._usual_s < LOOK_S and not _one_core
        if not self._looks:
            return 0.0
        self._busy = time.thread_time()
        return began + LOOK_S

    def end(self) -> None:
        """It came."""
        waited = min(time.monotonic() - self._began, _LONG_S)
        looked = min(waited, LOOK_S)  # after that it slept, and of course others had the core
        if self._looks and time.thread_time() - self._busy < looked / 2:
            self._usual_s = _LONG_S
        else:
            self._usual_s += _WEIGHT * (waited - self._usual_s)


class Lookout:
    """The place of the one thread of clients that may look. It is left when another one wants it."""

    def __init__(self) -> None:
        self._taken = threading.Lock()
        self.wanted = False

    def take(self) -> bool:
        free = self._taken.acquire(blocking=False)
        self.wanted = not free
        return free

    def leave(self) -> None:
        self._taken.release()


lookout = Lookout()
