"""The schedule: which pending job is next.

Each domain has two heaps. *Waiting* holds (time, id, job): jobs due later and leases that will end. *Ready*
holds (priority, due, id, job). Two heaps of heads tell which domain is next, for those who ask for any.

    put ----> waiting --(time comes)--> ready --(taken)--> waiting, for the end of its lease
       \\_______ due already ___________^

Nothing is ever taken out of the middle of a heap. An entry counts only as long as it agrees with its job;
others are thrown away when they come to the top, and a heap with too many of them is made anew. So every
step costs the logarithm of the number of jobs, and `next` is as quick with a million as with a thousand.

For each domain that has ready jobs there is a head which is not larger than its first ready job, and
likewise for waiting ones: a head that proves too small is replaced by the true one when it is met.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from heapq import heapify, heappop, heappush

from headrace.journal.rows import JobRow, Where

_Ready = tuple[int, int, int, JobRow]
_Waiting = tuple[int, int, JobRow]
_PENDING, _LEASED = int(Where.PENDING), int(Where.LEASED)


class _Domain:
    __slots__ = ("in_turn", "ready", "waiting")

    def __init__(self) -> None:
        self.ready: list[_Ready] = []
        self.waiting: list[_Waiting] = []
        self.in_turn = False


class Schedule:
    def __init__(self) -> None:
        self._domains: dict[str, _Domain] = {}
        self._ready_heads: list[tuple[int, int, int, str]] = []
        self._waiting_heads: list[tuple[int, str]] = []
        self._turns: deque[str] = deque()
        """Domains with ready jobs, in the order in which a fair `next` serves them."""

    def add(self, row: JobRow, now: int) -> None:
        """A pending job: ready, or waiting for its time."""
        if row.due <= now:
            self._make_ready(row)
        else:
            self._wait(row, row.due)
        if row.expires is not None:
            self._wait(row, row.expires)

    def add_lease(self, row: JobRow) -> None:
        self._wait(row, row.lease)

    def due(self, now: int) -> list[JobRow]:
        """Move what has become due to ready. The jobs whose lease or life has ended: the caller decides."""
        ended: list[JobRow] = []
        heads = self._waiting_heads
        while heads and heads[0][0] <= now:
            _time, name = heappop(heads)
            domain = self._domains.get(name)
            if domain is None:
                continue
            waiting = domain.waiting
            while waiting and waiting[0][0] <= now:
                time, _id, row = heappop(waiting)
                if row.where == _PENDING and row.due == time:
                    self._make_ready(row)
                if (row.where == _LEASED and row.lease == time) or (
                    row.where == _PENDING and row.expires == time
                ):
                    ended.append(row)
            self._head_of_waiting(name, domain)
        return ended

    def first(self, name: str) -> JobRow | None:
        """The job of that domain that is next; it stays until its state changes."""
        domain = self._domains.get(name)
        if domain is None:
            return None
        ready = domain.ready
        while ready:
            if _counts(ready[0]):
                return ready[0][3]
            heappop(ready)
        if not domain.waiting and not domain.in_turn:
            del self._domains[name]
        return None

    def first_of_any(self) -> JobRow | None:
        """By priority, then due time, then age, over all domains."""
        heads = self._ready_heads
        while heads:
            head = heads[0]
            row = self.first(head[3])
            if row is not None and row.id == head[2] and row.priority == head[0] and row.due == head[1]:
                return row
            heappop(heads)
            if row is not None:
                heappush(heads, (row.priority, row.due, row.id, row.domain))
        return None

    def first_in_turn(self) -> JobRow | None:
        """The first job of the domain whose turn it is; then it is the next one's turn."""
        turns = self._turns
        while turns:
            name = turns[0]
            row = self.first(name)
            if row is not None:
                turns.rotate(-1)
                return row
            turns.popleft()
            domain = self._domains.get(name)
            if domain is not None:
                domain.in_turn = False
        return None

    def next_time(self, name: str | None = None) -> int | None:
        """When something will next become due, or a lease end: in that domain, or anywhere."""
        if name is not None:
            domain = self._domains.get(name)
            return self._first_time(domain) if domain is not None else None
        heads = self._waiting_heads
        while heads:
            time, head = heads[0]
            domain = self._domains.get(head)
            true = self._first_time(domain) if domain is not None else None
            if true == time:
                return time
            heappop(heads)
            if true is not None:
                heappush(heads, (true, head))
        return None

    def domains(self) -> list[str]:
        return list(self._domains)

    # --- inside

    def _make_ready(self, row: JobRow) -> None:
        domain = self._domain(row.domain)
        entry = (row.priority, row.due, row.id, row)
        ready = domain.ready
        heappush(ready, entry)
        if ready[0] is entry:
            heappush(self._ready_heads, (row.priority, row.due, row.id, row.domain))
            self._few_heads()
        if worth_a_look(ready) and 2 * sum(map(_counts, ready)) < len(ready):
            domain.ready = [entry for entry in ready if _counts(entry)]
            heapify(domain.ready)
        if not domain.in_turn:
            domain.in_turn = True
            self._turns.append(row.domain)

    def _wait(self, row: JobRow, time: int) -> None:
        domain = self._domain(row.domain)
        entry = (time, row.id, row)
        waiting = domain.waiting
        heappush(waiting, entry)
        if waiting[0] is entry:
            heappush(self._waiting_heads, (time, row.domain))
            self._few_heads()
        if worth_a_look(waiting) and 2 * sum(map(_agrees, waiting)) < len(waiting):
            domain.waiting = [entry for entry in waiting if _agrees(entry)]
            heapify(domain.waiting)

    def _few_heads(self) -> None:
        """Heads that were overtaken by smaller ones are not kept for ever."""
        for heads in (self._ready_heads, self._waiting_heads):
            if worth_a_look(heads) and len(heads) > 4 * len(self._domains):
                self._ready_heads = [(*d.ready[0][:3], name) for name, d in self._domains.items() if d.ready]
                self._waiting_heads = [
                    (d.waiting[0][0], name) for name, d in self._domains.items() if d.waiting
                ]
                heapify(self._ready_heads)
                heapify(self._waiting_heads)
                return

    def _domain(self, name: str) -> _Domain:
        domain = self._domains.get(name)
        if domain is None:
            domain = self._domains[name] = _Domain()
        return domain

    def _first_time(self, domain: _Domain) -> int | None:
        waiting = domain.waiting
        while waiting and not _agrees(waiting[0]):
            heappop(waiting)
        return waiting[0][0] if waiting else None

    def _head_of_waiting(self, name: str, domain: _Domain) -> None:
        if domain.waiting:
            heappush(self._waiting_heads, (domain.waiting[0][0], name))


def _agrees(entry: _Waiting) -> bool:
    time, _id, row = entry
    if row.where == _LEASED:
        return row.lease == time
    return row.where == _PENDING and time in (row.due, row.expires)


def _counts(entry: _Ready) -> bool:
    priority, due, _id, row = entry
    return row.where == _PENDING and row.due == due and row.priority == priority


def worth_a_look(heap: Sized) -> bool:
    """Whether to count what is stale: at each power of two, so that counting costs next to nothing."""
    size = len(heap)
    return size > 64 and size & (size - 1) == 0
