"""A lane: the ready jobs of one domain and priority, by due time.

Nearly all come in that order, so a lane is a queue; the few that come late (they had to wait for their time)
go to a heap beside it. A job that is taken or gone says so, and is thrown away when it comes to the front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Sized
from heapq import heappop, heappush
from itertools import islice

from headrace.journal.rows import JobRow, Where

Waiting = tuple[int, int, JobRow]
"""A time, and the id of the row: what heaps order by."""
_PENDING = int(Where.PENDING)


class Lane:
    __slots__ = ("late", "queue")

    def __init__(self) -> None:
        self.queue: deque[JobRow] = deque()
        self.late: list[Waiting] = []

    def add(self, row: JobRow) -> None:
        queue = self.queue
        if queue:
            last = queue[-1]
            if row.due <= last.due and (row.due, row.id) < (last.due, last.id):
                heappush(self.late, (row.due, row.id, row))
                return
        queue.append(row)
        size = len(queue)
        if not size & (size - 1) and worth_a_look(queue):
            self._drop_stale()

    def extend(self, rows: Sequence[JobRow]) -> None:
        """Add jobs that are in order already."""
        queue, first = self.queue, rows[0]
        if queue and (first.due, first.id) < (queue[-1].due, queue[-1].id):
            for row in rows:
                self.add(row)
            return
        before = len(queue)
        queue.extend(rows)
        if grew_over_a_power(before, len(queue)):
            self._drop_stale()

    def first(self) -> JobRow | None:
        queue, late = self.queue, self.late
        while queue and queue[0].where != _PENDING:
            queue.popleft()
        if not late:
            return queue[0] if queue else None
        while late and not (late[0][2].where == _PENDING and late[0][2].due == late[0][0]):
            heappop(late)
        if not late:
            return queue[0] if queue else None
        row = late[0][2]
        return row if not queue or (row.due, row.id) < (queue[0].due, queue[0].id) else queue[0]

    def front(self, count: int) -> list[JobRow]:
        """The first jobs: as many of `count` as stand in the queue behind one another, at least one."""
        first = self.first()
        if first is None or self.late:
            return [] if first is None else [first]
        rows = list(islice(self.queue, count))
        wheres = [row.where for row in rows]
        if wheres.count(_PENDING) < len(rows):
            del rows[next(at for at, where in enumerate(wheres) if where != _PENDING) :]
        return rows

    def _drop_stale(self) -> None:
        queue = self.queue
        if 2 * sum(each.where == _PENDING for each in queue) < len(queue):
            self.queue = deque(each for each in queue if each.where == _PENDING)


def worth_a_look(heap: Sized) -> bool:
    """Whether to count what is stale: at each power of two, so that counting costs next to nothing."""
    size = len(heap)
    return size > 64 and size & (size - 1) == 0


def grew_over_a_power(before: int, after: int) -> bool:
    """`worth_a_look`, for what grew by many at once."""
    return after > 64 and after.bit_length() > before.bit_length()
