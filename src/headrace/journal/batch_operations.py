"""What can be done with many jobs at once: as a series (see `series`) if all are plain, else one by one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from headrace.journal.events import EVENT_BYTES, Event, Kind, brief
from headrace.journal.job_operations import JobOperations, Wanted
from headrace.journal.leases import Leases
from headrace.journal.new_jobs import NewJobs
from headrace.journal.residents import VOLATILE_ROW_BYTES
from headrace.journal.rows import JobRow
from headrace.journal.series import SERIES_BYTES, SERIES_EVENTS, Series
from headrace.kernel.errors import DiskFull

_PUT, _TAKE, _DONE = int(Kind.PUT), int(Kind.TAKE), int(Kind.DONE)
_new = tuple.__new__
_NOTHING_ELSE = (None,) * (len(Event._fields) - 4)
_FEW = 4
"""Fewer are quicker one by one than as a series."""
_ANY = 1 << 62


class BatchOperations(JobOperations):
    def put_many(self, now: int, jobs: NewJobs) -> list[int]:
        """`put` for many; none of them may be over already."""
        self.tick(now)
        ids: list[int] = []
        for at in range(0, len(jobs.resource), SERIES_EVENTS):
            ids += self._put_part(now, jobs.part(at, at + SERIES_EVENTS))
        return ids

    def _put_part(self, now: int, jobs: NewJobs) -> list[int]:
        """As a series, if nobody has asked for any of them."""
        resources, domain, priority, due, kind, value, stamp = jobs
        count, first = len(resources), self._ledger.upcoming
        if count < _FEW or not self._table.strangers(resources):
            return [self._put(now, job) for job in jobs.jobs()]
        ids = list(range(first, first + count))
        stamp = now if stamp is None else stamp  # nothing is there
        said = (_PUT, now, ids, resources, None, domain, priority, due, None, None, stamp, 0, kind, value)
        series = Series(_new(Event, (*said, None, None)), count)
        if series.bytes > SERIES_BYTES:
            return [self._put(now, job) for job in jobs.jobs()]
        self._ledger.emit_series(series)
        return ids

    def check_memory(self, now: int, jobs: Iterable[tuple[bytes, int]]) -> None:
        """MemoryFull, if jobs of these resources and sizes, in memory only, could not be put one and all."""
        self.tick(now)
        wanted, known = self._residents.volatile_bytes, dict[bytes, int]()
        for resource, size in jobs:
            row = self._table.pending.get(resource)
            if row is None or row.volatile:
                before = known.get(resource, 0 if row is None else row.size + VOLATILE_ROW_BYTES)
                known[resource] = size + VOLATILE_ROW_BYTES
                wanted += max(0, known[resource] - before)  # one that shrinks may come after those that grow
        self._check_volatile_bytes(wanted)

    def take_many(
        self, now: int, wanted: Wanted, count: int, bytes_most: int = _ANY
    ) -> list[tuple[JobRow, bytes]]:
        """Up to `count`, until there is none, or their resources and payloads have so many bytes."""
        self.tick(now)
        found: list[tuple[JobRow, bytes]] = []
        size = 0
        while len(found) < count and size < bytes_most:
            try:
                taken = self._take_some(now, wanted, count - len(found), bytes_most - size)
            except DiskFull:
                if not found:
                    raise
                break
            if not taken:
                break
            found += taken
            if bytes_most != _ANY:
                size += sum(len(row.resource) + len(value) for row, value in taken)
        return found

    def _take_some(self, now: int, wanted: Wanted, count: int, bytes_most: int) -> list[tuple[JobRow, bytes]]:
        """Many or one, for which there is room; none if there is none."""
        taken = self._take_front(now, wanted, count, bytes_most)
        if not taken:
            self._ledger.admit_more(0)
            one = self._take(now, wanted)
            taken = [] if one is None else [one]
        return taken

    def _take_front(
        self, now: int, wanted: Wanted, count: int, bytes_most: int
    ) -> list[tuple[JobRow, bytes]]:
        """Lease many of one lane, as a series; none if only few are surely next, and in memory."""
        domain, until, delete, _ = wanted
        if domain is None or delete or count < _FEW:
            return []
        rows = self._table.schedule.front(domain, min(count, SERIES_EVENTS))
        values: list[Any] = [row.value for row in rows]
        if None in values:
            del rows[values.index(None) :]
        if bytes_most != _ANY:
            ends = accumulate(len(row.resource) + row.size for row in rows)
            del rows[sum(end < bytes_most for end in ends) + 1 :]
        ids = [row.id for row in rows]
        if len(rows) < _FEW or min(ids) < 0:
            return []
        attempts: Any = [row.attempts + 1 for row in rows]
        if attempts.count(attempts[0]) == len(attempts):
            attempts = attempts[0]
        keys = [row.resource for row in rows]
        said = (_TAKE, now, ids, keys, None, None, None, None, until, None, None, attempts)
        self._emit_admitted(Series(_new(Event, (*said, None, None, None, None)), len(rows)))
        return list(zip(rows, values))  # noqa: B905 - there may be values of more

    def still_held(self, now: int, given: Leases) -> tuple[list[int], list[int]]:
        """Of jobs with the ends of their leases, those that are under these leases still, and those lost."""
        ids, until = given
        if until is None:
            return ids, []
        self.tick(now)
        find = self._table.leased.get
        held: list[int] = []
        lost: list[int] = []
        for id, end in zip(ids, until, strict=True):  # noqa: A001
            row = find(id)
            (lost if row is None or row.lease != end else held).append(id)
        return held, lost

    def done_many(self, now: int, ids: Iterable[int]) -> list[int]:
        """Those whose lease was lost."""
        self.tick(now)
        numbers, lost = list(ids), list[int]()
        if len(numbers) > SERIES_EVENTS:
            self._admit_ends(numbers)
        for at in range(0, len(numbers), SERIES_EVENTS):
            self._done_part(now, numbers[at : at + SERIES_EVENTS], lost)
        return lost

    def _done_part(self, now: int, ids: list[int], lost: list[int]) -> None:
        """As a series, if all are leased."""
        find, emit, count = self._table.leased.get, self._emit, len(ids)
        rows = list(map(find, ids))
        if count >= _FEW and all(rows) and len(set(ids)) == count and min(ids) >= 0:
            keys = [row.resource for row in rows if row is not None]
            self._emit_admitted(Series(_new(Event, (_DONE, now, ids, keys, *_NOTHING_ELSE)), count))
            return
        self._admit_ends(ids)
        for id in ids:  # noqa: A001
            row = find(id)
            if row is None:
                lost.append(id)
            else:
                emit(brief(_DONE, now, id, row.resource), id < 0)

    def _emit_admitted(self, series: Series) -> None:
        """What became of jobs, which nobody has announced; or DiskFull."""
        self._ledger.admit_more(2 * EVENT_BYTES * series.count + series.bytes)
        self._ledger.emit_series(series)

    def _admit_ends(self, ids: list[int]) -> None:
        """Room for saying that all of these are done: all of them, or DiskFull."""
        rows = filter(None, map(self._table.leased.get, ids))
        self._ledger.admit_more(sum([len(row.resource) + 2 * EVENT_BYTES for row in rows]))
