"""What can be done with jobs: each operation looks at the tables, refuses or emits events, and answers.

Nothing here waits or touches the disk. `emit` folds an event into the tables at once and queues it for the
log; `now` is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from headrace.journal.errors import LeaseLost, MemoryFull, NoSuchKey
from headrace.journal.events import Event, Kind
from headrace.journal.jobs import JobTable
from headrace.journal.residents import VOLATILE_ROW_BYTES, Residents
from headrace.journal.rows import JobRow, Where
from headrace.journal.settings import JournalSettings

_HOST = re.compile(r"://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:\s]*)")


class Emit(Protocol):
    @property
    def upcoming(self) -> int:
        """The index that the next event will have in the log."""
        ...

    def __call__(self, event: Event, volatile: bool = False) -> None: ...


Read = Callable[[JobRow], bytes]
"""The payload of a job, from memory or from the log."""


class NewJob(NamedTuple):
    resource: bytes
    domain: str
    priority: int
    due: int
    type: int
    value: bytes
    stamp: int
    expires: int | None = None
    persist: bool = True


class Wanted(NamedTuple):
    """Which jobs somebody wants, and how."""

    domain: str | None
    until: int
    delete: bool = False
    fair: bool = False


def domain_of(resource: str) -> str:
    """The host of the first URI in the resource, in small letters; "" if there is none."""
    match = _HOST.search(resource)
    return match[1].lower() if match is not None else ""


class JobOperations:
    def __init__(
        self, table: JobTable, residents: Residents, settings: JournalSettings, emit: Emit, read: Read
    ) -> None:
        self._table = table
        self._settings = settings
        self._emit = emit
        self._read = read
        self._residents = residents
        self._volatile_id: int | None = None

    def put(self, now: int, job: NewJob) -> int:
        """One pending job of that resource: changed if there is one, else new. Its id."""
        self.tick(now)
        row = self._table.pending.get(job.resource)
        if not job.persist and (row is None or row.volatile):
            self._check_volatile(row, len(job.value))
        if row is not None and row.volatile and job.persist:
            self._emit(Event(Kind.DROP, now, row.id, job.resource), True)
            row = None
        if row is not None and job.stamp < row.stamp:
            return row.id  # a request that was overtaken on its way
        priority, attempts = job.priority, 0
        if row is None:
            volatile = not job.persist
            id = self._next_volatile_id(now) if volatile else self._emit.upcoming  # noqa: A001
        else:
            volatile, id, attempts = row.volatile, row.id, row.attempts  # noqa: A001
            if self._settings.keep_highest_priority:
                priority = min(priority, row.priority)
        self._emit(
            Event(
                Kind.PUT,
                now,
                id,
                job.resource,
                None,
                job.domain,
                priority,
                job.due,
                None,
                job.expires,
                job.stamp,
                attempts,
                job.type,
                job.value,
            ),
            volatile,
        )
        return id

    def take(self, now: int, wanted: Wanted) -> tuple[JobRow, bytes] | None:
        """Lease the next job, or take it for good: it and its payload. None if nothing is due."""
        self.tick(now)
        schedule = self._table.schedule
        if wanted.domain is not None:
            row = schedule.first(wanted.domain)
        else:
            row = schedule.first_in_turn() if wanted.fair else schedule.first_of_any()
        if row is None:
            return None
        value = self._read(row)
        attempts = row.attempts + 1
        if wanted.delete:
            self._emit(Event(Kind.DONE, now, row.id, row.resource), row.volatile)
            row.attempts = attempts
        else:
            event = Event(
                Kind.TAKE,
                now,
                row.id,
                row.resource,
                None,
                None,
                None,
                None,
                wanted.until,
                None,
                None,
                attempts,
            )
            self._emit(event, row.volatile)
        return row, value

    def next_time(self, domain: str | None) -> int | None:
        return self._table.schedule.next_time(domain)

    def done(self, now: int, id: int, until: int | None) -> None:  # noqa: A002
        row = self._leased(now, id, until)
        self._emit(Event(Kind.DONE, now, id, row.resource), row.volatile)

    def done_many(self, now: int, ids: Iterable[int]) -> list[int]:
        """Those whose lease was lost."""
        self.tick(now)
        lost = []
        for id in ids:  # noqa: A001
            row = self._table.leased.get(id)
            if row is None:
                lost.append(id)
            else:
                self._emit(Event(Kind.DONE, now, id, row.resource), row.volatile)
        return lost

    def fail(
        self,
        now: int,
        id: int,  # noqa: A002
        until: int | None,
        due: int | None,
        priority: int | None = None,
    ) -> None:
        """Give it back, or put it aside if it has failed too often, or drop it if a newer one waits."""
        row = self._leased(now, id, until)
        if not self._end(now, row):
            due = now + self._settings.retry.pause_us(row.attempts) if due is None else due
            self._emit(Event(Kind.RETRY, now, row.id, row.resource, priority=priority, due=due), row.volatile)

    def extend(self, now: int, id: int, until: int | None, new_until: int) -> None:  # noqa: A002
        row = self._leased(now, id, until)
        self._emit(Event(Kind.EXTEND, now, row.id, row.resource, until=new_until), row.volatile)

    def drop(self, now: int, resource: bytes) -> None:
        """Forget the pending job of a resource."""
        self.tick(now)
        row = self._table.pending.get(resource)
        if row is None:
            raise NoSuchKey(f"there is no pending job for {resource.decode(errors='replace')!r}")
        self._emit(Event(Kind.DROP, now, row.id, row.resource), row.volatile)

    def redrive(self, now: int, choose: Callable[[JobRow], bool]) -> int:
        """Dead jobs are pending again, with no attempts counted; how many."""
        self.tick(now)
        count = 0
        for row in [row for row in self._table.dead.values() if choose(row)]:
            if self._second(now, row) is not None:
                self._emit(Event(Kind.DROP, now, row.id, row.resource), row.volatile)
            else:
                self._emit(Event(Kind.REVIVE, now, row.id, row.resource, due=now), row.volatile)
                count += 1
        return count

    def bury(self, now: int, row: JobRow) -> None:
        """Forget a dead job for good."""
        self._emit(Event(Kind.DROP, now, row.id, row.resource), row.volatile)

    def tick(self, now: int) -> None:
        """Leases and lives that have ended. What ends one may end another: a second job that waits, say."""
        while ended := self._table.schedule.due(now):
            for row in ended:
                if row.where in (Where.PENDING, Where.BESIDE):
                    self._emit(Event(Kind.DROP, now, row.id, row.resource), row.volatile)
                elif row.where == Where.LEASED and row.lease <= now and not self._end(now, row):
                    self._emit(Event(Kind.LAPSE, now, row.id, row.resource, due=row.lease), row.volatile)

    # --- inside

    def _end(self, now: int, row: JobRow) -> bool:
        """Whether a job that failed does not come back: a newer one waits, its life is over, or it has failed
        too often.
        """
        limit = self._settings.max_attempts
        if self._second(now, row) is not None or (row.expires is not None and row.expires <= now):
            kind = Kind.DROP
        elif limit is not None and row.attempts >= limit:
            kind = Kind.DEAD
        else:
            return False
        self._emit(Event(kind, now, row.id, row.resource, attempts=row.attempts), row.volatile)
        return True

    def _second(self, now: int, row: JobRow) -> JobRow | None:
        """The pending job of the same resource, if its life is not over."""
        second = self._table.pending.get(row.resource)
        if second is not None and second.expires is not None and second.expires <= now:
            self._emit(Event(Kind.DROP, now, second.id, second.resource), second.volatile)
            return None
        return second

    def _leased(self, now: int, id: int, until: int | None) -> JobRow:  # noqa: A002
        self.tick(now)
        row = self._table.leased.get(id)
        if row is None or (until is not None and row.lease != until):
            raise LeaseLost(f"job {id} is not leased to you any more: its lease ended, or it was finished")
        return row

    def _next_volatile_id(self, now: int) -> int:
        """Negative, and growing: the oldest first; from the time on, so that none is ever used twice."""
        self._volatile_id = now - (1 << 62) if self._volatile_id is None else self._volatile_id + 1
        return self._volatile_id

    def _check_volatile(self, row: JobRow | None, size: int) -> None:
        freed = 0 if row is None else row.size + VOLATILE_ROW_BYTES
        wanted = self._residents.volatile_bytes - freed + size + VOLATILE_ROW_BYTES
        if wanted > self._settings.volatile_bytes:
            raise MemoryFull(
                f"jobs and values in memory only have reached {self._settings.volatile_bytes} bytes: "
                "work on some, persist some, or allow more"
            )
