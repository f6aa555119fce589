"""Group commit: threads that want durability share one sync.

The first thread to ask becomes the leader: it takes note of how far the log reaches, syncs, and wakes those
whose entries are covered. Those who came while it was busy wait for the next round, led by the first of
them. So the cost of a sync is divided by the number of threads that wait, and nobody waits for more than
two. Everybody who waits has a lock of its own, so that nobody is woken before its turn has come: with one
condition for all, each sync would wake every thread, and most of them only to wait again.

A sync that fails is final: the kernel may have dropped the pages and a second sync would claim success.
Every waiting and every later caller gets the error; only reopening the log, which reads again what is
really there, can go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from headrace.kernel.errors import Broken


class _Turn:
    """Of a thread that waits: it comes when its frames are durable, when it is to lead, or with a failure."""

    __slots__ = ("come", "failure", "leads", "ticket")

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.leads = False
        self.failure: Broken | None = None
        self.come = threading.Lock()
        self.come.acquire()


class GroupCommit:
    """`sync_now` makes everything appended so far durable and returns how far that was.

    "How far" is a *ticket*: the count of appended frames. Indexes would not do, because a head marker
    must become durable too, and has none.
    """

    def __init__(self, sync_now: Callable[[], int]) -> None:
        self._sync_now = sync_now
        self._lock = threading.Lock()
        self._waiting: deque[_Turn] = deque()
        self._leading = False
        self._failure: Broken | None = None
        self._durable = 0
        self.commits = 0
        self.syncs = 0

    def sync(self, ticket: int) -> None:
        """Return once every frame up to `ticket` is durable."""
        turn = None
        with self._lock:
            self.commits += 1
            if self._failure is not None:
                raise self._failure
            if self._durable >= ticket:
                return
            if self._leading:
                turn = _Turn(ticket)
                self._waiting.append(turn)
            else:
                self._leading = True
        if turn is None or self._waited(turn):
            self._lead()

    def _waited(self, turn: _Turn) -> bool:
        """Wait for one's turn; whether it is to lead."""
        try:
            turn.come.acquire()
        except BaseException:  # interrupted: nobody may wait for one who is gone
            with self._lock:
                if turn.leads:
                    self._pass_on()
                elif turn in self._waiting:
                    self._waiting.remove(turn)
            raise
        if turn.failure is not None:
            raise turn.failure
        return turn.leads

    def _lead(self) -> None:
        reached, failure = 0, None
        try:
            reached = self._sync_now()
        except Broken as error:
            failure = error
            raise
        finally:
            with self._lock:
                self.syncs += 1
                self._failure = failure
                if reached > self._durable:
                    self._durable = reached
                self._wake_covered()
                self._pass_on()

    def _wake_covered(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for turn in waiting:
            if turn.ticket > self._durable and self._failure is None:
                self._waiting.append(turn)
            else:
                turn.failure = self._failure
                turn.come.release()

    def _pass_on(self) -> None:
        """Let the first of those who wait lead the next round."""
        self._leading = bool(self._waiting)
        if self._waiting:
            turn = self._waiting.popleft()
            turn.leads = True
            turn.come.release()
