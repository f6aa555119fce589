"""What can be done with jobs: each operation looks at the tables, refuses or emits events, and answers.

Nothing here waits or touches the disk. The ledger's `emit` folds an event into the tables at once and queues
it for the log; `now` is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from headrace.journal import checks
from headrace.journal.errors import LeaseLost, MemoryFull, NoSuchKey
from headrace.journal.events import EVENT_BYTES, Event, Kind, brief
from headrace.journal.jobs import JobTable
from headrace.journal.ledger import Ledger
from headrace.journal.new_jobs import AnyJob
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
        self._schedule = table.schedule
        self._settings = settings
        self._ledger = ledger
        self._emit = ledger.emit
        self._read = read
        self._residents = residents
        self._volatile_id: int | None = None

    def put(self, now: int, job: AnyJob) -> int:
        """One pending job of that resource: changed if there is one, else new. Its id."""
        if now >= self._schedule.soonest:
            self.tick(now)
        return self._put(now, job)

    def _put(self, now: int, job: AnyJob) -> int:
        resource, domain, priority, due, kind, value, stamp, expires, persist = job
        emit, attempts = self._emit, 0
        row = self._table.pending.get(resource)
        if stamp is None:
            stamp = now if row is None or row.stamp < now else row.stamp
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
        if now >= self._schedule.soonest:
            self.tick(now)
        return self._take(now, wanted)

    def _take(self, now: int, wanted: Wanted) -> tuple[JobRow, bytes] | None:
        domain, until, delete, fair = wanted
        schedule = self._schedule
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

    def fail(
        self,
        now: int,
        id: int,  # noqa: A002
        until: int | None,
        due: int | None,
        priority: int | None = None,
        domain: str | None = None,
    ) -> None:
        """Give it back, or put it aside if it has failed too often, or drop it if a newer one waits."""
        row = self._leased(now, id, until)
        if not self._end(now, row):
            due = now + self._settings.retry.pause_us(row.attempts) if due is None else due
            said = Event(Kind.RETRY, now, row.id, row.resource, domain=domain, priority=priority, due=due)
            self._emit(said, row.volatile)

    def untake(self, now: int, id: int, until: int | None) -> None:  # noqa: A002
        """Nobody got it: it is pending again as it was, and that it was taken is no attempt."""
        row = self._leased(now, id, until)
        if not self._over(now, row):
            said = Event(Kind.RETRY, now, row.id, row.resource, due=row.due, attempts=row.attempts - 1)
            self._emit(said, row.volatile)

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
        rows = [row for row in self._table.dead.values() if choose(row)]
        self._ledger.admit(sum([len(row.resource) + EVENT_BYTES for row in rows]))
        for row in rows:
            if self.newer(now, row.resource, row) is not None:
                self.bury(now, row)
            else:
                self._emit(Event(Kind.REVIVE, now, row.id, row.resource, due=now), row.volatile)
                count += 1
        return count

    def newer(self, now: int, resource: bytes, row: JobRow) -> JobRow | None:
        """The pending job of a resource, if its life is not over: it is to take the place of `row`.

        If only `row` would survive a restart, the newer one does from now on: a resource that is to be worked
        on for certain still is.
        """
        second = self._table.pending.get(resource)
        if second is None:
            return None
        if second.expires is not None and second.expires <= now:
            self._emit(brief(Kind.DROP, now, second.id, resource), second.volatile)
        elif second.volatile and not row.volatile:
            said = (resource, second.domain, second.priority, second.due, second.type, self._read(second))
            self._put(now, (*said, second.stamp, second.expires, True))
        return self._table.pending.get(resource)

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
        if self._over(now, row):
            return True
        limit = self._settings.max_attempts
        if limit is None or row.attempts < limit:
            return False
        kind = self._make_grave(now, row)
        self._emit(Event(kind, now, row.id, row.resource, attempts=row.attempts), row.volatile)
        return True

    def _over(self, now: int, row: JobRow) -> bool:
        """Whether a leased job is not wanted any more: then it is gone."""
        over = row.expires is not None and row.expires <= now
        if self.newer(now, row.resource, row) is None and not over:
            return False
        self._emit(Event(Kind.DROP, now, row.id, row.resource, attempts=row.attempts), row.volatile)
        return True

    def _make_grave(self, now: int, row: JobRow) -> Kind:
        """A resource has one dead job: the earlier one is gone, and says so itself. Replay passes over what
        jobs said that were done later. But one that survives a restart is not given up for one that does not.
        """
        earlier = self._table.dead.get(row.resource)
        if earlier is not None and row.volatile and not earlier.volatile:
            return Kind.DROP
        if earlier is not None:
            self.bury(now, earlier)
        return Kind.DEAD

    def _leased(self, now: int, id: int, until: int | None) -> JobRow:  # noqa: A002
        if now >= self._schedule.soonest:
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
        self._check_volatile_bytes(self._residents.volatile_bytes - freed + size + VOLATILE_ROW_BYTES)

    def _check_volatile_bytes(self, wanted: int) -> None:
        if wanted > self._settings.volatile_bytes:
            raise MemoryFull(
                f"jobs and values in memory only have reached {self._settings.volatile_bytes} bytes: "
                "work on some, persist some, or allow more"
            )
