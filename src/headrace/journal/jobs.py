"""The jobs of a journal: tables that events fold into. Nothing here decides, everything here is replayable.

A resource has at most one pending job, one leased job beside it, and one dead one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from itertools import repeat
from typing import Any

from headrace.journal.events import Event, Fold, Kind
from headrace.journal.residents import Residents
from headrace.journal.rows import JobRow, Where
from headrace.journal.schedule import Schedule
from headrace.journal.series import Series, each

# Plain numbers: they are compared and stored for every job, and an enum's cost more to look up.
_PENDING, _LEASED, _DEAD = int(Where.PENDING), int(Where.LEASED), int(Where.DEAD)
_BESIDE, _GONE = int(Where.BESIDE), int(Where.GONE)
_PUT, _TAKE, _DONE = int(Kind.PUT), int(Kind.TAKE), int(Kind.DONE)


class JobTable:
    def __init__(self, residents: Residents) -> None:
        self.pending: dict[bytes, JobRow] = {}
        self.leased: dict[int, JobRow] = {}
        self.worked_on: dict[bytes, JobRow] = {}
        """The leased ones again, by resource."""
        self.dead: dict[bytes, JobRow] = {}
        self.schedule = Schedule()
        self.depth = [0] * 256
        """Pending jobs of each priority."""
        self.finished: Counter[str] = Counter()
        """How many were done, dropped and have died since the journal was opened."""
        self.opened_at = 0
        """Whatever was due then is ready at once, however old the event that says so."""
        self._residents = residents
        self.apply: dict[int, Fold] = {
            Kind.PUT: self._put,
            Kind.TAKE: self._take,
            Kind.EXTEND: self._extend,
            Kind.RETRY: self._retry,
            Kind.LAPSE: self._retry,
            Kind.DONE: self._gone,
            Kind.DROP: self._gone,
            Kind.DEAD: self._dead,
            Kind.REVIVE: self._revive,
            Kind.HELD: self._held,
            Kind.GRAVE: self._grave,
        }
        self._folds_of_series = {_PUT: self._put_series, _TAKE: self._take_series, _DONE: self._done_series}

    def __len__(self) -> int:
        return len(self.pending) + len(self.leased) + len(self.dead)

    def rows(self) -> Iterator[JobRow]:
        yield from self.pending.values()
        yield from self.leased.values()
        yield from self.dead.values()

    def find(self, resource: bytes, id: int) -> JobRow | None:  # noqa: A002
        """The job of that resource with that id, whatever has become of it."""
        for table in (self.pending, self.worked_on, self.dead):
            row = table.get(resource)
            if row is not None and row.id == id:
                return row
        return None

    # --- what each event does

    def _put(self, event: Event, place: int) -> None:
        _, _, id_, key, _, domain, priority, due, _, expires, stamp, attempts, type_, value, _, _ = event
        earlier = self.pending.get(key or b"")
        if (
            earlier is not None
            and earlier.id == id_
            and (earlier.domain, earlier.priority, earlier.due) == (domain, priority, due)
            and earlier.expires == expires
        ):  # said again by a sweep: it stands in the schedule where it stood
            earlier.place, earlier.stamp = place, stamp or 0
            earlier.attempts, earlier.type = attempts or 0, type_ or 0
            if earlier.value != value:
                self._residents.changed(earlier, value or b"")
            return
        row = JobRow.of(event, place)
        if earlier is not None:  # the schedule still has it somewhere, and will see that it is gone
            self._remove(earlier, event.at)
        value = event.value
        if value or row.id < 0:
            self._residents.added(row, value or b"")
        self._to_pending(row, event.at)

    def _held(self, event: Event, place: int) -> None:
        row = self._restated(event, place)
        self._lease(row, event.until or 0)
        second = self.pending.get(row.resource)
        if second is not None and second.where == _PENDING:
            # In a replay the one that waits beside it may be known first, and stands in the schedule then.
            del self.pending[row.resource]
            self.depth[second.priority] -= 1
            self._to_pending(self._anew(second), event.at)

    def _grave(self, event: Event, place: int) -> None:
        row = self._restated(event, place)
        earlier = self.dead.get(row.resource)
        if earlier is not None and earlier is not row:
            self._remove(earlier, event.at)
        row.where, row.lease = _DEAD, event.until or 0
        self.dead[row.resource] = row

    def _take(self, event: Event, place: int) -> None:
        _, _, id_, key, _, _, _, _, until, _, _, attempts, _, _, _, _ = event
        row = self.pending.get(key or b"")
        if row is None or row.id != id_:
            row = self.leased.get(id_ or 0)
            if row is None:
                return
        if row.where == _PENDING:
            self.schedule.leave(row)
        if row.where != _LEASED:
            del self.pending[row.resource]
            self.depth[row.priority] -= 1
        row.attempts = attempts or 0
        self._lease(row, until or 0)

    def _extend(self, event: Event, place: int) -> None:
        row = self.leased.get(event.id or 0)
        if row is not None:
            row.lease = event.until or 0
            self.schedule.wait(row, row.lease)

    def _retry(self, event: Event, place: int) -> None:
        row = self.leased.get(event.id or 0)
        if row is None:
            return
        self._leave_leased(row, event.at)
        row = self._anew(row)
        row.due = event.due or 0
        if event.priority is not None:
            row.priority = event.priority
        if event.domain is not None:
            row.domain = event.domain
        if event.attempts is not None:
            row.attempts = event.attempts
        self._to_pending(row, event.at)

    def _revive(self, event: Event, place: int) -> None:
        row = self._known(event, self.dead)
        if row is None:
            return
        del self.dead[row.resource]
        row = self._anew(row)
        row.due, row.attempts = event.due or 0, 0
        self._to_pending(row, event.at)

    def _gone(self, event: Event, place: int) -> None:
        row = self.leased.get(event.id or 0)
        if row is None:
            row = self._known(event, self.pending) or self._known(event, self.dead)
            if row is None:
                return
        self.finished["done" if event.kind == _DONE else "dropped"] += 1
        self._remove(row, event.at)

    def _dead(self, event: Event, place: int) -> None:
        row = self.leased.get(event.id or 0)
        if row is None:
            return
        self._leave_leased(row, event.at)
        self.finished["died"] += 1
        earlier = self.dead.get(row.resource)
        if earlier is not None:
            self._remove(earlier, event.at)
        row.where, row.lease = _DEAD, event.at
        self.dead[row.resource] = row

    # --- what a series does: the same as its events, one after the other

    def strangers(self, resources: list[bytes]) -> bool:
        """Whether they are all different, and none of them has a job: a series can put them."""
        return (
            self.pending.keys().isdisjoint(resources)
            and self.worked_on.keys().isdisjoint(resources)
            and len(set(resources)) == len(resources)
        )

    def fold_series(self, series: Series, place: int) -> None:
        """New jobs of `strangers`, or pending ones that are said again; jobs of one lane that are taken;
        leased ones that are done. `place` is the index of the first."""
        self._folds_of_series[series.columns.kind](series.columns, series.count, place)

    def _put_series(self, columns: Any, count: int, place: int) -> None:
        if columns.key[0] in self.pending:
            for key, at in zip(columns.key, range(place, place + count), strict=True):
                self.pending[key].place = at
            return
        ids, keys, domain, priority, due = (
            columns.id,
            columns.key,
            columns.domain,
            columns.priority,
            columns.due,
        )
        of_each = (domain, priority, due, columns.stamp, ids, columns.type, columns.value)
        nowhere = (repeat(None), repeat(0), repeat(0), repeat(_PENDING))
        rows = list(map(JobRow, ids, keys, *map(each, of_each), *nowhere))
        self.pending.update(zip(keys, rows, strict=True))
        for rank in priority if type(priority) is list else ():
            self.depth[rank] += 1
        if type(priority) is not list:
            self.depth[priority] += count
        if columns.value:
            for row in rows:
                if row.value:
                    self._residents.added(row, row.value)
        now = max(columns.at, self.opened_at)
        if list in (type(domain), type(priority), type(due)):
            for row in rows:
                self.schedule.add(row, now)
        else:
            self.schedule.add_series(rows, now)

    def _take_series(self, columns: Any, count: int, place: int) -> None:
        ids, keys, until = columns.id, columns.key, columns.until
        rows = list(map(self.pending.pop, keys))
        self.schedule.leave_series(rows)
        self.depth[rows[0].priority] -= count
        for row, attempts in zip(rows, each(columns.attempts)):  # noqa: B905 - the same for all has no end
            row.where, row.lease, row.attempts = _LEASED, until, attempts
        self.leased.update(zip(ids, rows, strict=True))
        self.worked_on.update(zip(keys, rows, strict=True))
        self.schedule.wait_series(rows, until)

    def _done_series(self, columns: Any, count: int, place: int) -> None:
        keys, pending, forget = columns.key, self.pending, self._residents.forget
        worked_on = self.worked_on
        for row, key in zip(map(self.leased.pop, columns.id), keys, strict=True):
            del worked_on[key]
            row.where = _GONE
            if row.value != b"":
                forget(row)
        self.finished["done"] += count
        if not pending.keys().isdisjoint(keys):
            for key in keys:
                self._second_is_ready(key, columns.at)

    # --- inside

    def _restated(self, event: Event, place: int) -> JobRow:
        assert event.id is not None
        assert event.key is not None
        row = self.leased.get(event.id) or self.find(event.key, event.id)
        said = JobRow.of(event, place)
        if row is None:
            row = said
        else:
            row.said_again(said)
        self._residents.changed(row, event.value or b"")
        return row

    def _known(self, event: Event, table: dict[bytes, JobRow]) -> JobRow | None:
        row = table.get(event.key or b"")
        return row if row is not None and row.id == event.id else None

    def _anew(self, row: JobRow) -> JobRow:
        """The same job as a new row: a replay may have left the old one somewhere in the schedule."""
        new = copy(row)
        self._residents.replaced(row, new)
        row.where = _GONE
        return new

    def _to_pending(self, row: JobRow, at: int) -> None:
        row.lease = 0
        resource = row.resource
        self.pending[resource] = row
        self.depth[row.priority] += 1
        if row.expires is not None:
            self.schedule.add_life(row)
        if resource in self.worked_on:
            row.where = _BESIDE
        else:
            row.where = _PENDING
            self.schedule.add(row, at if at > self.opened_at else self.opened_at)

    def _lease(self, row: JobRow, until: int) -> None:
        row.where, row.lease = _LEASED, until
        self.leased[row.id] = self.worked_on[row.resource] = row
        self.schedule.wait(row, until)

    def _leave_leased(self, row: JobRow, at: int) -> None:
        del self.leased[row.id]
        del self.worked_on[row.resource]
        self._second_is_ready(row.resource, at)

    def _second_is_ready(self, resource: bytes, at: int) -> None:
        """Of a resource that nobody works on any more."""
        second = self.pending.get(resource)
        if second is not None:
            second.where = _PENDING
            self.schedule.add(second, max(at, self.opened_at))

    def _remove(self, row: JobRow, at: int) -> None:
        if row.where == _LEASED:
            self._leave_leased(row, at)
        elif row.where == _DEAD:
            del self.dead[row.resource]
        else:
            del self.pending[row.resource]
            self.depth[row.priority] -= 1
        row.where = _GONE
        if row.value != b"" or row.id < 0:
            self._residents.forget(row)
