"""What can be done with jobs: each operation looks at the tables, refuses or emits events, and answers.

Nothing here waits or touches the disk. The ledger's `emit` folds an event into the tables at once and queues
it for the log; `now` is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from headrace.journal import checks
from headrace.journal.errors import LeaseLost, MemoryFull, NoSuchKey
from headrace.journal.events import Event, Kind, brief
from headrace.journal.jobs import JobTable
from headrace.journal.ledger import Ledger
from headrace.journal.residents import VOLATILE_ROW_BYTES, Residents
from headrace.journal.rows import JobRow, Where
from headrace.journal.settings import JournalSettings

_HOST = re.compile(r"://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:\s]*)")
_SHORT = 256
"""Longer beginnings are not remembered."""
# Plain numbers, for what happens to every job: to look up a member of an enum costs 0.2 µs.
_PUT, _TAKE, _DONE = int(Kind.PUT), int(Kind.TAKE), int(Kind.DONE)
_new = tuple.__new__


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


AnyJob = NewJob | tuple[bytes, str, int, int, int, bytes, int, int | None, bool]
"""A plain tuple of the same is made in half the time."""


class Wanted(NamedTuple):
    """Which jobs somebody wants, and how."""

    domain: str | None
    until: int
    delete: bool = False
    fair: bool = False


def domain_of(resource: str) -> str:
    """The host of the first URI in the resource, in small letters; "" if there is none."""
    end = resource.find("/", resource.find("://") + 3)
    if 0 < end < _SHORT and "[" not in (beginning := resource[:end]):  # brackets may hold a slash
        return _host(beginning)
    return _host.__wrapped__(resource)


@lru_cache(1024)
def _host(beginning: str) -> str:
    """Of many resources that begin alike, up to where their path does."""
    match = _HOST.search(beginning)
    return checks.domain(match[1].lower()) if match is not None else ""


class JobOperations:
    def __init__(
        self, table: JobTable, residents: Residents, settings: JournalSettings, ledger: Ledger, read: Read
    ) -> None:
        self._table = table
        self._settings = settings
        self._ledger = ledger
        self._emit = ledger.emit
        self._read = read
        self._residents = residents
        self._volatile_id: int | None = None

    def put(self, now: int, job: AnyJob) -> int:
        """One pending job of that resource: changed if there is one, else new. Its id."""
        self.tick(now)
        return self._put(now, job)

    def put_many(self, now: int, jobs: Iterable[AnyJob]) -> list[int]:
        """The same for many; none of them may be over already."""
        self.tick(now)
        put = self._put
        return [put(now, job) for job in jobs]

    def _put(self, now: int, job: AnyJob) -> int:
        resource, domain, priority, due, kind, value, stamp, expires, persist = job
        emit, attempts = self._emit, 0
        row = self._table.pending.get(resource)
        if row is None and persist:
            volatile, id = False, self._ledger.upcoming  # noqa: A001
        else:
            if not persist and (row is None or row.volatile):
                self._check_volatile(row, len(value))
            if row is not None and row.volatile and persist:
                emit(brief(Kind.DROP, now, row.id, resource), True)
                row = None
            if row is None:
                volatile = not persist
                id = self._next_volatile_id(now) if volatile else self._ledger.upcoming  # noqa: A001
            elif stamp < row.stamp:
                return row.id  # a request that was overtaken on its way
            else:
                volatile, id, attempts = row.volatile, row.id, row.attempts  # noqa: A001
                if self._settings.keep_highest_priority:
                    priority = min(priority, row.priority)
        said = (
            _PUT,
            now,
            id,
            resource,
            None,
            domain,
            priority,
            due,
            None,
            expires,
            stamp,
            attempts,
            kind,
            value,
        )
        emit(_new(Event, (*said, None, None)), volatile)
        return id

    def take(self, now: int, wanted: Wanted) -> tuple[JobRow, bytes] | None:
        """Lease the next job, or take it for good: it and its payload. None if nothing is due."""
        self.tick(now)
        return self._take(now, wanted)

    def take_many(self, now: int, wanted: Wanted) -> Iterator[tuple[JobRow, bytes]]:
        """One after the other, as long as somebody asks and there is one."""
        self.tick(now)
        while (found := self._take(now, wanted)) is not None:
            yield found

    def _take(self, now: int, wanted: Wanted) -> tuple[JobRow, bytes] | None:
        domain, until, delete, fair = wanted
        schedule = self._table.schedule
        if domain is not None:
            row = schedule.first(domain)
        else:
            row = schedule.first_in_turn() if fair else schedule.first_of_any()
        if row is None:
            return None
        value = row.value
        if value is None:
            value = self._read(row)
        id_, resource, attempts = row.id, row.resource, row.attempts + 1
        if delete:
            self._emit(brief(_DONE, now, id_, resource), id_ < 0)
            row.attempts = attempts
        else:
            said = (_TAKE, now, id_, resource, None, None, None, None, until, None, None, attempts)
            self._emit(_new(Event, (*said, None, None, None, None)), id_ < 0)
        return row, value

    def next_time(self, domain: str | None) -> int | None:
        return self._table.schedule.next_time(domain)

    def done(self, now: int, id: int, until: int | None) -> None:  # noqa: A002
        row = self._leased(now, id, until)
        self._emit(brief(_DONE, now, id, row.resource), id < 0)

    def done_many(self, now: int, ids: Iterable[int]) -> list[int]:
        """Those whose lease was lost."""
        self.tick(now)
        lost, find, emit = [], self._table.leased.get, self._emit
        for id in ids:  # noqa: A001
            row = find(id)
            if row is None:
                lost.append(id)
            else:
                emit(brief(_DONE, now, id, row.resource), id < 0)
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
        self._emit(brief(Kind.DROP, now, row.id, row.resource), row.volatile)

    def redrive(self, now: int, choose: Callable[[JobRow], bool]) -> int:
        """Dead jobs are pending again, with no attempts counted; how many."""
        self.tick(now)
        count = 0
        for row in [row for row in self._table.dead.values() if choose(row)]:
            if self._second(now, row) is not None:
                self._emit(brief(Kind.DROP, now, row.id, row.resource), row.volatile)
            else:
                self._emit(Event(Kind.REVIVE, now, row.id, row.resource, due=now), row.volatile)
                count += 1
        return count

    def bury(self, now: int, row: JobRow) -> None:
        """Forget a dead job for good."""
        self._emit(brief(Kind.DROP, now, row.id, row.resource), row.volatile)

    def tick(self, now: int) -> None:
        """Leases and lives that have ended. What ends one may end another: a second job that waits, say."""
        schedule = self._table.schedule
        while now >= schedule.soonest:
            for row in schedule.due(now):
                if row.where in (Where.PENDING, Where.BESIDE):
                    self._emit(brief(Kind.DROP, now, row.id, row.resource), row.volatile)
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
            self._emit(brief(Kind.DROP, now, second.id, second.resource), second.volatile)
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
