"""Reading a journal that another process may have open: without its lock, without changing anything.

The state is what the log and the tail say at this moment. The tail may be poured into the log, and its files
used again, while they are being read, and the log's beginning may go; then all is read once more. This is
also how a copy is read, which only its follower has open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import pyarrow as pa

from headrace.journal.copy import check_whole
from headrace.journal.engine import LOG_DIRECTORY, Engine
from headrace.journal.events import Event, Kind, brief
from headrace.journal.ledger import Ledger
from headrace.journal.pouring import table_of
from headrace.journal.replay import STATE, events_of, replay
from headrace.journal.rows import JobRow, ValueRow
from headrace.journal.settings import JournalSettings
from headrace.journal.state import State
from headrace.journal.stored_settings import settings_of
from headrace.journal.value_operations import ValueOperations
from headrace.journal.value_verbs import ValueVerbs
from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import Damaged, ReadOnly, Trimmed
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.positions import read_positions
from headrace.log.tail import read_tail

T = TypeVar("T")
_TRIES = 20
_ALL = 1 << 62


def read_state(path: Path, clock: Clock | None = None) -> State:
    """The state of the journal in that directory, with all values in memory."""
    disk, now = Disk(), (clock or SystemClock()).now_us()
    for left in reversed(range(_TRIES)):
        with Log.open(path / LOG_DIRECTORY, read_only=True) as log:
            check_whole(disk, log.path, log.meta)
            settings = replace(settings_of(log), memory_bytes=_ALL)
            state = State(settings, now)
            try:
                start = max(read_positions(disk, log.path).get(STATE, 0), log.first_index)
                end = replay(log, start, state)
                for place, event in _tail_events(disk, path, log, end):
                    state.apply(event, place)
            except (Damaged, Trimmed):
                if not left:
                    raise
                continue
        _end_lives(state, now)
        return state
    raise AssertionError


def read_events(path: Path) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Every event that is kept, oldest first: the index of each batch's first one, and the batch."""
    disk = Disk()
    with Log.open(path / LOG_DIRECTORY, read_only=True) as log:
        end = log.first_index
        for batch in log.read():
            yield batch.base_index, batch.records
            end = batch.next_index
        events = [event for _place, event in _tail_events(disk, path, log, end)]
        for batch in table_of(events, sum(len(event.value or b"") for event in events)).to_batches():
            yield end, batch
            end += batch.num_rows


class ReadValues(ValueVerbs):
    """The values of a journal, as they are at this moment: whatever would change one is refused."""

    def __init__(self, path: Path) -> None:
        self._engine = cast(Engine, _Still(path))


class _Still:
    """In place of an engine and its ledger: nothing moves."""

    def __init__(self, path: Path) -> None:
        self.state = read_state(path)
        self.settings = JournalSettings()
        self.value_bytes = self.settings.value_bytes
        self._path = path
        self.values = ValueOperations(
            self.state.values,
            self.state.residents,
            self.settings,
            cast(Ledger, self),
            self.read,
            lambda key, kind, logged: None,
        )

    def do(self, operation: Callable[[int], T], size: int = 0) -> T:
        return operation(SystemClock().now_us())

    def emit(self, event: Event, volatile: bool = False) -> None:
        raise ReadOnly(f"{self._path} is only read here: nothing of it can be changed")

    def read(self, row: JobRow | ValueRow) -> bytes:
        return row.value or b""


def _end_lives(state: State, now: int) -> None:
    """What is over by now is not there, though nobody has said so yet: whoever works with it next does."""
    state.values.expire(now)
    rows = (*state.jobs.pending.values(), *state.jobs.leased.values())
    for row in [row for row in rows if row.expires is not None and row.expires <= now and row.lease <= now]:
        state.apply(brief(Kind.DROP, now, row.id, row.resource), row.place)


def _tail_events(disk: Disk, path: Path, log: Log, end: int) -> Iterator[tuple[int, Event]]:
    for record in read_tail(disk, path, log.meta.salt, end):
        for place, event in enumerate(events_of(record, path), record.index):
            if place >= end:
                yield place, event
