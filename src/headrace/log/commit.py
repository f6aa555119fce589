"""Group commit: threads that want durability share one sync.

The first thread to ask becomes the leader: it takes note of how far the log reaches, syncs, and wakes all
whose entries are covered. Those who came while it was busy wait for the next round, led by one of them.
So the cost of a sync is divided by the number of threads that wait, and nobody waits for more than two.

A sync that fails is final: the kernel may have dropped the pages and a second sync would claim success.
Every waiting and every later caller gets the error; only reopening the log, which reads again what is
really there, can go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.kernel.errors import Broken


class GroupCommit:
    """`sync_now` makes everything appended so far durable and returns how far that was.

    "How far" is a *ticket*: the count of appended frames. Indexes would not do, because a head marker
    must become durable too, and has none.
    """

    def __init__(self, sync_now: Callable[[], int]) -> None:
        self._sync_now = sync_now
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._leading = False
        self._failure: Broken | None = None
        self._durable = 0
        self.commits = 0
        self.syncs = 0

    def sync(self, ticket: int) -> None:
        """Return once every frame up to `ticket` is durable."""
        with self._lock:
            self.commits += 1
            while self._leading and self._durable < ticket and self._failure is None:
                self._waiting += 1
                try:
                    self._changed.wait()
                finally:
                    self._waiting -= 1
            if self._failure is not None:
                raise self._failure
            if self._durable >= ticket:
                return
            self._leading = True
        reached, failure = 0, None
        try:
            reached = self._sync_now()
        except Broken as error:
            failure = error
            raise
        finally:
            with self._lock:
                self._leading = False
                self._failure = failure
                self.syncs += 1
                if reached > self._durable:
                    self._durable = reached
                if self._waiting:
                    self._changed.notify_all()
