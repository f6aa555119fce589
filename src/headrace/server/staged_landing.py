"""Landing runs that are staged on a node: the work of the stream's publishing thread.

The rules are those of `stream.landing`, as over a path. A write without an id can be asked for again too,
since an answer may get lost on its way: what was staged for it is removed once it is in the log, so a write
of which nothing is staged any more is there. Between its commit and the removal a crash can come; so the
commit names the write, and what is left of the last one is removed before the next.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa

from headrace.kernel.errors import Refused
from headrace.kernel.names import checked_name
from headrace.log.keys import KeyColumn
from headrace.log.log import Log
from headrace.log.state import Commit
from headrace.log.target import Target
from headrace.server.staged_run import check_there, named_run
from headrace.stream.landing import UNNAMED, Owner, land_unnamed
from headrace.stream.staging import Run, StagingArea, read_runs
from headrace.stream.unique import UniqueIds


class Landed(msgspec.Struct, forbid_unknown_fields=True):
    """What is to land: a batch of a query, or a whole write. `runs` are names that the node gave."""

    query: str
    runs: list[str]
    batch: int = 0
    writer: str = "default"
    take_over: bool = False
    head: int | None = None
    """Where HEAD moves afterwards, as sortable bits."""
    whole: bool = False
    write_id: str | None = None

    def check(self) -> None:
        checked_name(self.query, "id of a query")
        checked_name(self.writer, "name of a writer")
        if not 0 <= self.batch < 1 << 63 or not 0 <= (self.head or 0) < 1 << 64:
            raise Refused("batch and head are whole numbers from 0 on")
        if self.whole and (self.batch or self.head is not None):
            raise Refused("a whole write has no batch but 0, and moves no HEAD")


def land_staged(stream: str, area: StagingArea, wanted: Landed, log: Target, ids: UniqueIds | None) -> Commit:
    """All of the runs, once however often this is asked for."""
    assert isinstance(log, Log)
    folder = area.folder(f"{wanted.query}/{wanted.batch}")
    runs = [named_run(folder, name) for name in wanted.runs]
    records = _records(runs, KeyColumn(log.schema, log.meta.order_by) if log.meta.order_by else None)
    if not wanted.whole:
        owner = Owner(stream, wanted.writer, wanted.take_over)
        commit = owner.land(log, wanted.query, wanted.batch, records, head=wanted.head, ids=ids)
        area.landed(wanted.query, wanted.batch)
        return commit
    if wanted.write_id is not None:
        commit = Owner.of_write(stream, wanted.write_id).land(log, "once", 0, records, ids=ids)
    else:
        commit = _land_unnamed(log, area, wanted.query, records, ids)
    area.clear_for_good(wanted.query)
    area.remove_abandoned()
    return commit


def _records(runs: list[Run], key: KeyColumn | None) -> Iterator[pa.RecordBatch]:
    """Nothing is looked at before it is needed: of a batch that is there already the runs are gone."""
    check_there(runs)
    yield from read_runs(runs, key)


def _land_unnamed(
    log: Log, area: StagingArea, write: str, records: Iterator[pa.RecordBatch], ids: UniqueIds | None
) -> Commit:
    last = log.last_commit(UNNAMED)
    if last is not None and last.note:
        area.clear_for_good(last.note)  # a crash may have left it
    if not area.folder(write).is_dir():
        return Commit(UNNAMED, 0, log.next_index, log.next_index, write, repeated=True)
    return land_unnamed(log, records, note=write, ids=ids)
