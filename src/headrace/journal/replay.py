"""Replay: from a log and its tail to a state.

Opening costs what is alive, not what has happened: replay begins where the sweep has got to, and passes over
jobs that are gone, which a first look at two columns tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.journal.collection import without_collection
from headrace.journal.columns import column_of
from headrace.journal.events import Event, Kind, from_batch
from headrace.journal.pouring import append_some, table_of
from headrace.journal.state import State
from headrace.journal.value import Type
from headrace.kernel.errors import Damaged
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.tail import Record, read_tail

STATE = "state"
"""The position of a journal's log at which replay begins: no event before it counts."""
_TYPE_MAX = 127
_EVENTS = msgspec.msgpack.Decoder(list[Event])


def drain_tail(disk: Disk, directory: Path, log: Log) -> int:
    """Append to the log what only the tail has, as one pour would have; how many events that was.

    A full ring takes it, too: it was on the disk before, and only who has opened it can make room.
    """
    base, size = log.next_index, 0
    events: list[Event] = []
    borders: list[int] = []
    for record in read_tail(disk, directory, log.meta.salt, base):
        events += events_of(record, directory)[max(0, base - record.index) :]
        borders.append(record.next_index)
        size += len(record.payload)
    rest = table_of(events, size)
    while rest.num_rows:
        rest = append_some(log, rest, borders, beyond_limit=True)
    if events:
        log.sync(force=True)
    return len(events)


def events_of(record: Record, directory: Path) -> list[Event]:
    try:
        return list(map(_in_bounds, _EVENTS.decode(record.payload)))
    except msgspec.MsgspecError as error:
        raise Damaged(f"{directory}: its tail has a record that cannot be read ({error})") from error


def _in_bounds(event: Event) -> Event:
    """Servers once took any byte for a type, and the log's column has none above 127: such a value is read as
    its bytes, whatever its type says.
    """
    return event if event.type is None or event.type <= _TYPE_MAX else event._replace(type=Type.BUFFER)


def replay(log: Log, start: int, state: State) -> int:
    """Fold the events from `start` on into `state`; the index after the last."""
    with without_collection():
        return _replay(log, start, state)


def _replay(log: Log, start: int, state: State) -> int:
    end = start
    gone = _gone_ids(log, start)
    for batch in log.read(start):
        records = batch.records
        places: Sequence[int] = range(batch.base_index, batch.next_index)
        if gone is not None:
            kept = pc.invert(pc.is_in(records.column("id"), value_set=gone))
            places = column_of(places, pa.int64()).filter(kept).to_pylist()
            records = records.filter(kept)
        for place, event in zip(places, from_batch(records), strict=True):
            state.apply(event, place)
        end = batch.next_index
        state.residents.evict(end)
    return end


def _gone_ids(log: Log, start: int) -> pa.Array | None:
    """Jobs that were done or dropped: nothing that is said about them matters any more."""
    ends = column_of([Kind.DONE, Kind.DROP], pa.int8())
    found = []
    for batch in log.read(start, columns=["kind", "id"]):
        ended = pc.is_in(batch.records.column("kind"), value_set=ends)
        found.append(batch.records.column("id").filter(ended))
    ids = pa.concat_arrays(found) if found else None
    return ids if ids is not None and len(ids) else None
