"""Group commit: threads that want durability share one sync.

The first thread to ask becomes the leader: it takes note of how far the log reaches, syncs, and wakes those
whose entries are covered. Those who came while it was busy wait for the next round, led by the first of
them. So the cost of a sync is divided by the number of threads that wait, and nobody waits for more than
two. Everybody who waits has a lock of its own, so that nobody is woken before its turn has come: with one
condition for all, each sync would wake every thread, and most of them only to wait again.

Threads are woken in a chain:

    synced --> who leads the next round --> first of those who are safe --> second --> ...

One thread runs Python at a time. If all who are safe were woken at once, each would wake up, find Python's
lock taken, sleep again, and be woken a second time; and whoever is to lead the next sync would come to it
somewhere among them, while the disk has nothing to do. So each is woken by the one before it, which has
Python's lock at that moment and soon lets go of it. A program that keeps Python's lock for itself makes every
link wait 5 ms for it. The leader sees that: it needed the lock to come back from its sync. After a slow round
all are woken at once.

A sync that fails is final: the kernel may have dropped the pages and a second sync would claim success.
Every waiting and every later caller gets the error; only reopening the log, which reads again what is
really there, can go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from headrace.kernel.errors import Broken

_QUICK_S = 0.002
"""Less than the 5 ms for which a busy thread keeps Python's lock; more than a sync of a quick disk."""


class _Turn:
    """Of a thread that wants a sync. It is woken when its frames are durable, when it is to lead, or with a
    failure."""

    __slots__ = ("come", "done", "failure", "following", "ticket")

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.done = False
        self.failure: Broken | None = None
        self.following: _Turn | None = None
        """Whom it wakes when it is woken itself."""
        self.come = threading.Lock()
        self.come.acquire()

    def wake(self) -> None:
        """Once more does no harm."""
        with suppress(RuntimeError):
            self.come.release()

    def pass_on(self) -> None:
        if self.following is not None:
            self.following.wake()
            self.following = None


class GroupCommit:
    """`sync_now` makes everything appended so far durable and returns how far that was.

    "How far" is a *ticket*: the count of appended frames. Indexes would not do, because a head marker
    must become durable too, and has none.

    An interrupt (Ctrl-C) can come between any two steps. So there is one list, whose first leads, and one way
    out of it, `_leave`, which can be done again from its beginning.
    """

    def __init__(self, sync_now: Callable[[], int]) -> None:
        self._sync_now = sync_now
        self._lock = threading.Lock()
        self._turns: list[_Turn] = []
        self._failure: Broken | None = None
        self._durable = 0
        self._began = 0.0
        self.commits = 0
        self.syncs = 0

    def sync(self, ticket: int) -> None:
        """Return once every frame up to `ticket` is durable."""
        turn = _Turn(ticket)
        try:
            with self._lock:
                self.commits += 1
                if self._failure is not None:
                    raise self._failure
                if self._durable >= ticket:
                    return
                self._turns.append(turn)
                leads = self._turns[0] is turn
            if not leads:
                turn.come.acquire()
                turn.pass_on()
            if turn.failure is not None:
                raise turn.failure
            if not turn.done:
                self._lead(turn)
        except BaseException:
            self._leave(turn)
            raise
        finally:  # however it ends, those behind it do not wait for it
            try:
                turn.pass_on()
            except BaseException:
                turn.pass_on()
                raise

    def _lead(self, turn: _Turn) -> None:
        self._began = time.monotonic()
        try:
            reached = self._sync_now()
            if reached > self._durable:
                self._durable = reached
        except Broken as error:
            self._failure = error
            raise
        finally:
            self.syncs += 1
            self._leave(turn)

    def _leave(self, turn: _Turn) -> None:
        """Take a turn out, and those that are covered; the first of the others leads the next round."""
        with self._lock:
            staying, covered = [], []
            for each in self._turns:
                if each is turn:
                    continue
                if self._failure is None and each.ticket > self._durable:
                    staying.append(each)
                    continue
                each.failure = self._failure
                each.done = True
                covered.append(each)
            self._wake(staying[:1] + covered)  # who leads already is woken once more
            self._turns = staying

    def _wake(self, turns: list[_Turn]) -> None:
        if time.monotonic() - self._began < _QUICK_S:
            for one, following in pairwise(turns):
                one.following = following
            del turns[1:]
        for each in turns:
            each.wake()
