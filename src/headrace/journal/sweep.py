"""The sweep: what moves the tail of the ring.

The log's oldest events are read again. Of each complete event that still counts (its job or value says: my
place is here) the same is said anew at the log's end; all others are history. Then everything before can go.
A little is swept whenever the log is more than twice what is alive, so the log stays in proportion, opening
stays quick, and nobody waits for a snapshot of everything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.journal.collection import pieces
from headrace.journal.columns import column_of
from headrace.journal.events import EVENT_BYTES, Event, Kind
from headrace.journal.ledger import Ledger
from headrace.journal.replay import STATE
from headrace.journal.rows import JobRow, ValueRow, Where
from headrace.journal.series import Series
from headrace.journal.settings import JournalSettings
from headrace.journal.state import State
from headrace.kernel.clock import Clock
from headrace.kernel.durations import microseconds
from headrace.kernel.limits import CONTAINER_BYTES_MIN
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.positions import PositionFile
from headrace.log.segment_reader import Batch

_SLACK_EVENTS = 100_000
"""What replay goes through in a quarter of a second: small journals need not be swept more often."""
_SLACK_BYTES = 64 << 20
_STEP_EVENTS = 20_000
_LOOKED_AT = ["kind", "id", "key"]
_TOGETHER = 100
_SMALL_BYTES = 1024
_COMPLETE = column_of([Kind.PUT, Kind.HELD, Kind.GRAVE, Kind.SET, Kind.DELETE], pa.int8())
_PUT, _SET, _DELETE = int(Kind.PUT), int(Kind.SET), int(Kind.DELETE)

Read = Callable[[JobRow | ValueRow], bytes]
Found = tuple[int, int, int | None, bytes]
"""Of a complete event: its index, kind, id and key."""


class Sweep:
    """`read` gives a row's value, wherever it is."""

    def __init__(
        self,
        log: Log,
        ledger: Ledger,
        settings: JournalSettings,
        clock: Clock,
        disk: Disk,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._settings = settings
        self._clock = clock
        self._position = PositionFile.open(disk, log.path, STATE)
        self.swept = max(self._position.index, log.first_index)
        """Replay begins here: no event before it counts."""
        self._said = 0
        """What was said anew is before this index."""
        self._looked_at = -1
        self._stopped = False
        self._sweeping = threading.Lock()

    def run(self, state: State, read: Read) -> None:
        """Sweep until the log is in proportion again, or `stop` is called."""
        with self._sweeping:
            self._run(state, read)

    def _run(self, state: State, read: Read) -> None:
        while not self._stopped and self._wanted(state):
            stop = min(self.swept + _STEP_EVENTS, self._ledger.poured)
            for batch in self._log.read(self.swept, stop, columns=_LOOKED_AT):
                for begin, end in pieces(batch.records.num_rows):
                    found = _complete(batch, begin, end)
                    for at in range(0, len(found), _TOGETHER):
                        with self._ledger.lock:  # for a few: taking it costs more than looking at one
                            self._say_again(state, found[at : at + _TOGETHER], read)
            if self._ledger.poured < self._said:  # perhaps by a step that a full disk kept from its end
                self._ledger.pour(beyond_limit=True)
            self._advance(stop)

    def _say_again(self, state: State, found: list[Found], read: Read) -> None:
        """What still counts. Small pending jobs, which are the most of it, as a series."""
        now, pending, small = self._clock.now_us(), state.jobs.pending, list[JobRow]()
        for each in found:
            index, kind, _id, key = each
            row = pending.get(key) if kind == _PUT else None
            if row is not None and row.place == index and row.value is not None and row.size <= _SMALL_BYTES:
                small.append(row)
            elif events := list(restated(state, *each, read, now)):
                self._say(events)
        if small:
            series = job_series(small, now)
            self._ledger.admit(EVENT_BYTES * series.count + series.bytes)
            self._ledger.emit_series(series)
            self._said = self._ledger.upcoming

    def _say(self, events: list[Event]) -> None:
        """All or none of them: a value whose keys were left out would have lost them."""
        said = [part for event in events for part in (event.key, event.other, event.value) if part]
        self._ledger.admit(sum(map(len, said)) + EVENT_BYTES * len(events))
        for event in events:
            self._ledger.emit(event)
        self._said = self._ledger.upcoming

    def stop(self) -> None:
        """Begin no further step."""
        self._stopped = True

    def close(self) -> None:
        self._position.close()

    def _wanted(self, state: State) -> bool:
        poured = self._ledger.poured
        events = poured - self.swept
        if events > 0 and self._ring_is_filling(state):
            return True
        if events > 2 * state.live + _SLACK_EVENTS:
            return True
        if poured - self._looked_at < 1000 or events <= state.live:
            return False
        self._looked_at = poured
        return self._log.info().bytes > 2 * state.residents.live_bytes + _SLACK_BYTES + 400 * events

    def _ring_is_filling(self, state: State) -> bool:
        """Whether more than half of a ring is in use, and most of that is history."""
        ring = self._settings.containers
        if ring is None or ring.limit is None:
            return False
        info = self._log.info()
        used = (info.segments - 1) * max(ring.bytes, CONTAINER_BYTES_MIN)
        alive = state.residents.live_bytes + 400 * state.live
        return info.segments > max(2, ring.limit // 2) and used > 2 * alive

    def _advance(self, swept: int) -> None:
        self._log.sync(force=True)  # what was said again is on the disk before the first saying goes
        self._position.save(swept)
        self.swept = swept
        history = self._settings.history
        if history is None:
            self._log.trim(swept)
        elif history != "forever":
            cutoff, before = self._clock.now_us() - microseconds(history), 0
            for batch in self._log.read(0, swept, columns=["kind"]):
                if batch.time_us > cutoff:
                    break
                before = batch.next_index
            if before > self._log.first_index:
                self._log.trim(before)


def _complete(batch: Batch, begin: int, end: int) -> list[Found]:
    """The complete events of a piece of a batch."""
    records = batch.records.slice(begin, end - begin)
    complete = pc.is_in(records.column("kind"), value_set=_COMPLETE)
    indexes = column_of(range(batch.base_index + begin, batch.base_index + end), pa.int64())
    chosen = [indexes, *(records.column(name) for name in _LOOKED_AT)]
    return list(zip(*(column.filter(complete).to_pylist() for column in chosen), strict=True))


def restated(
    state: State,
    index: int,
    kind: int,
    id_: int | None,
    key: bytes,
    read: Read,
    now: int,
) -> Iterator[Event]:
    """What has to be said again of the complete event at `index`, if it still counts."""
    if kind == _DELETE:
        deleted = state.values.deleted.get(key)
        if deleted is not None and deleted.place == index:
            yield Event(Kind.DELETE, deleted.at, key=key, stamp=deleted.stamp)
    elif kind == _SET:
        value = state.values.by_key.get(key)
        if value is not None and value.place == index:
            yield from value_events(value, key, read(value))
    else:
        job = state.jobs.find(key, id_ or 0)
        if job is not None and job.place == index:
            yield job_event(job, read(job), now)


def job_event(row: JobRow, value: bytes, now: int) -> Event:
    """All there is to say of a job. Whoever asked for it may have a clock that is ahead: events have not."""
    kind = {Where.LEASED: Kind.HELD, Where.DEAD: Kind.GRAVE}.get(Where(row.where), Kind.PUT)
    return Event(
        kind,
        min(row.stamp, now),
        row.id,
        row.resource,
        None,
        row.domain,
        row.priority,
        row.due,
        row.lease or None,
        row.expires,
        row.stamp,
        row.attempts,
        row.type,
        value,
    )


def job_series(rows: list[JobRow], now: int) -> Series:
    """The same of pending jobs whose values are in memory."""
    stamps = [row.stamp for row in rows]
    said: tuple[Any, ...] = (
        _PUT,
        [min(stamp, now) for stamp in stamps],
        [row.id for row in rows],
        [row.resource for row in rows],
        None,
        [row.domain for row in rows],
        [row.priority for row in rows],
        [row.due for row in rows],
        None,
        [row.expires for row in rows],
        stamps,
        [row.attempts for row in rows],
        [row.type for row in rows],
        [row.value for row in rows],
    )
    return Series(Event(*said), len(rows))


def value_events(row: ValueRow, key: bytes, value: bytes) -> Iterator[Event]:
    """All there is to say of a value, beginning with that key."""
    yield Event(
        Kind.SET,
        row.modified,
        key=key,
        expires=row.expires,
        stamp=row.stamp,
        type=row.type,
        value=value,
        ttl=row.ttl,
        created=row.created,
    )
    for other in row.keys:
        if other != key:
            yield Event(Kind.LINK, row.modified, key=key, other=other)
    if row.lease:
        yield Event(Kind.WORK, row.modified, key=key, until=row.lease)
