"""The schedule: which pending job is next.

Jobs that are due stand in *lanes*, one for each domain and priority, by due time; one costs its lane 8 bytes
and no comparison. Jobs due later, and leases that will end, *wait* in a heap by time, one for each domain.
Two heaps of heads tell which domain is next, for those who ask for any.

    put ----> waiting --(time comes)--> lane --(taken)--> waiting, for the end of its lease
       \\_______ due already ___________^

Nothing is taken out of the middle. A row that is taken or gone says so, and is thrown away when it comes to
the front; a pending job that changes gets a new row. A heap with too many stale entries is made anew. So
`next` is as quick with a million jobs as with a thousand.

Each domain that has ready jobs has one head which is not larger than its first ready job, and likewise for
waiting ones: a head that proves too small is replaced by the true one when it is met; one that a smaller head
has replaced is thrown away then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat

from headrace.journal.lane import Lane, Waiting, grew_over_a_power, worth_a_look
from headrace.journal.rows import JobRow, Where

_Rank = tuple[int, int, int]
"""Priority, due time and id: what jobs are served by."""
_NEVER = 1 << 63
_PENDING, _LEASED, _BESIDE = int(Where.PENDING), int(Where.LEASED), int(Where.BESIDE)


class _Domain:
    __slots__ = ("lanes", "ready_head", "waiting", "waiting_head")

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}
        self.waiting: list[Waiting] = []
        self.ready_head: _Rank | None = None
        self.waiting_head: int | None = None


class Schedule:
    def __init__(self) -> None:
        self._domains: dict[str, _Domain] = {}
        self._ready_heads: list[tuple[_Rank, str]] = []
        self._waiting_heads: list[tuple[int, str]] = []
        self._lives: list[Waiting] = []
        """When pending jobs expire, of all domains."""
        self.soonest = _NEVER
        """Nothing becomes due, and no lease or life ends, before that time."""
        self._turns: dict[str, None] = {}
        """Domains with ready jobs, in the order in which a fair `next` serves them."""

    def add(self, row: JobRow, now: int) -> None:
        """A pending job: ready, or waiting for its time."""
        due, name, priority = row.due, row.domain, row.priority
        if due > now:
            self.wait(row, due)
            return
        domain = self._domains.get(name) or self._domain(name)
        lane = domain.lanes.get(priority)
        if lane is None:
            lane = domain.lanes[priority] = Lane()
        lane.add(row)
        head = domain.ready_head
        if head is None or (priority, due, row.id) < head or name not in self._turns:
            self._head_of_ready(domain, row)

    def add_series(self, rows: Sequence[JobRow], now: int) -> None:
        """Pending jobs of one domain, priority and due time, the oldest first."""
        first = rows[0]
        if first.due > now:
            self.wait_series(rows, first.due)
            return
        domain = self._domain(first.domain)
        lane = domain.lanes.get(first.priority)
        if lane is None:
            lane = domain.lanes[first.priority] = Lane()
        lane.extend(rows)
        self._head_of_ready(domain, first)

    def add_life(self, row: JobRow) -> None:
        """A pending job that expires, whether it is in the schedule or waits beside another."""
        assert row.expires is not None
        heappush(self._lives, (row.expires, row.id, row))
        self.soonest = min(self.soonest, row.expires)
        if worth_a_look(self._lives) and 2 * sum(map(_lives, self._lives)) < len(self._lives):
            self._lives = [entry for entry in self._lives if _lives(entry)]
            heapify(self._lives)

    def due(self, now: int) -> list[JobRow]:
        """Move what has become due to ready. The jobs whose lease or life has ended: the caller decides."""
        ended: list[JobRow] = []
        while self._lives and self._lives[0][0] <= now:
            entry = heappop(self._lives)
            if _lives(entry):
                ended.append(entry[2])
        heads = self._waiting_heads
        while heads and heads[0][0] <= now:
            head, name = heappop(heads)
            domain = self._domains.get(name)
            if domain is None or domain.waiting_head != head:
                continue
            waiting = domain.waiting
            while waiting and waiting[0][0] <= now:
                time, _id, row = heappop(waiting)
                if row.where == _PENDING and row.due == time:
                    self.add(row, now)
                elif row.where == _LEASED and row.lease == time:
                    ended.append(row)
            domain.waiting_head = None
            if waiting:
                self._head_of_waiting(domain, waiting[0][0], name)
        firsts = [heap[0][0] for heap in (self._waiting_heads, self._lives) if heap]
        self.soonest = min(firsts, default=_NEVER)
        return ended

    def first(self, name: str) -> JobRow | None:
        """The job of that domain that is next."""
        domain = self._domains.get(name)
        if domain is None:
            return None
        lanes = domain.lanes
        while lanes:
            priority = min(lanes) if len(lanes) > 1 else next(iter(lanes))
            row = lanes[priority].first()
            if row is not None:
                return row
            del lanes[priority]
        self._turns.pop(name, None)
        if _first_time(domain) is None:
            del self._domains[name]
        return None

    def front(self, name: str, count: int) -> list[JobRow]:
        """The jobs of that domain that are next, of one lane: as many of `count` as are known to follow one
        another; none only if there is none.
        """
        first = self.first(name)
        return [] if first is None else self._domains[name].lanes[first.priority].front(count)

    def leave(self, row: JobRow) -> None:
        """A job that is taken leaves its lane, if it is the first there, as it is when somebody asked for
        the next one. In a replay it may be anywhere; then it stays until it comes to the front.
        """
        domain = self._domains.get(row.domain)
        lane = None if domain is None else domain.lanes.get(row.priority)
        if lane is None:
            return
        queue = lane.queue
        if queue and queue[0] is row:
            queue.popleft()
        elif lane.late and lane.late[0][2] is row:
            heappop(lane.late)

    def leave_series(self, rows: Sequence[JobRow]) -> None:
        """`leave` for those that `front` gave."""
        queue = self._domains[rows[0].domain].lanes[rows[0].priority].queue
        if queue[0] is rows[0]:
            for _ in rows:
                queue.popleft()
        else:
            self.leave(rows[0])

    def first_of_any(self) -> JobRow | None:
        """By priority, then due time, then age, over all domains."""
        heads = self._ready_heads
        while heads:
            head, name = heads[0]
            domain = self._domains.get(name)
            if domain is not None and domain.ready_head == head:
                row = self.first(name)
                if row is not None and _rank(row) == head:
                    return row
                domain.ready_head = None if row is None else _rank(row)
                if row is not None:
                    heappush(heads, (_rank(row), name))
                    # the one that proved too small is still first, and goes now
            heappop(heads)
        return None

    def first_in_turn(self) -> JobRow | None:
        """The first job of the domain whose turn it is; then it is the next one's turn."""
        turns = self._turns
        while turns:
            name = next(iter(turns))
            row = self.first(name)
            turns.pop(name, None)
            if row is not None:
                turns[name] = None
                return row
        return None

    def next_time(self, name: str | None = None) -> int | None:
        """When something will next become due, or a lease end: in that domain, or anywhere."""
        if name is not None:
            domain = self._domains.get(name)
            return _first_time(domain) if domain is not None else None
        heads = self._waiting_heads
        while heads:
            head, of = heads[0]
            domain = self._domains.get(of)
            if domain is not None and domain.waiting_head == head:
                time = _first_time(domain)
                if time == head:
                    return time
                domain.waiting_head = None
                if time is not None:
                    self._head_of_waiting(domain, time, of)
            heappop(heads)
        return None

    def wait(self, row: JobRow, time: int) -> None:
        """Something happens to the row then: it becomes due, or its lease ends."""
        domain = self._domains.get(row.domain) or self._domain(row.domain)
        waiting, head = domain.waiting, domain.waiting_head
        heappush(waiting, (time, row.id, row))
        if head is None or time < head:
            self._head_of_waiting(domain, time, row.domain)
            self._few_heads()
        size = len(waiting)
        if not size & (size - 1) and worth_a_look(waiting):
            self._drop_stale(domain)

    def wait_series(self, rows: Sequence[JobRow], time: int) -> None:
        """`wait` for rows of one domain."""
        name = rows[0].domain
        domain = self._domain(name)
        waiting, head, before = domain.waiting, domain.waiting_head, len(domain.waiting)
        entries = zip(repeat(time), [row.id for row in rows], rows)
        deque(map(heappush, repeat(waiting), entries), 0)
        if head is None or time < head:
            self._head_of_waiting(domain, time, name)
            self._few_heads()
        if grew_over_a_power(before, len(waiting)):
            self._drop_stale(domain)

    # --- inside

    def _head_of_ready(self, domain: _Domain, row: JobRow) -> None:
        head, name = domain.ready_head, row.domain
        rank = (row.priority, row.due, row.id)
        if head is None or rank < head:
            domain.ready_head = rank
            heappush(self._ready_heads, (rank, name))
            self._few_heads()
        if name not in self._turns:
            self._turns[name] = None

    def _drop_stale(self, domain: _Domain) -> None:
        waiting = domain.waiting
        if 2 * sum(map(_agrees, waiting)) < len(waiting):
            domain.waiting = [entry for entry in waiting if _agrees(entry)]
            heapify(domain.waiting)

    def _head_of_waiting(self, domain: _Domain, time: int, name: str) -> None:
        domain.waiting_head = time
        heappush(self._waiting_heads, (time, name))
        if time < self.soonest:
            self.soonest = time

    def _few_heads(self) -> None:
        """Heads that were replaced by smaller ones are not kept for ever."""
        domains = self._domains.items()
        if worth_a_look(self._ready_heads) and len(self._ready_heads) > 4 * len(domains):
            self._ready_heads = [(each.ready_head, name) for name, each in domains if each.ready_head]
            heapify(self._ready_heads)
        if worth_a_look(self._waiting_heads) and len(self._waiting_heads) > 4 * len(domains):
            self._waiting_heads = [
                (each.waiting_head, name) for name, each in domains if each.waiting_head is not None
            ]
            heapify(self._waiting_heads)

    def _domain(self, name: str) -> _Domain:
        domain = self._domains.get(name)
        if domain is None:
            domain = self._domains[name] = _Domain()
        return domain


def _first_time(domain: _Domain) -> int | None:
    waiting = domain.waiting
    while waiting and not _agrees(waiting[0]):
        heappop(waiting)
    return waiting[0][0] if waiting else None


def _agrees(entry: Waiting) -> bool:
    time, _id, row = entry
    if row.where == _LEASED:
        return row.lease == time
    return row.where == _PENDING and row.due == time


def _lives(entry: Waiting) -> bool:
    return entry[2].where in (_PENDING, _BESIDE) and entry[2].expires == entry[0]


def _rank(row: JobRow) -> _Rank:
    return row.priority, row.due, row.id
