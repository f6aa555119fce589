"""Landing runs of jobs that are staged on a node: all of a batch in one operation of the journal, once.

A run holds jobs in the columns of `journal.job_columns`. A batch of a query, and a write with an id, the
journal itself remembers (`once`): asked for again, it is known, and nothing staged is needed any more.

A write without an id would be remembered for ever that way. Instead all of them have one writer in the
journal, and each gets the next number of it just before it is put, in a *ticket*: a file beside its runs. So
whatever is left after a crash can be told: what has a ticket that the journal knows was put, and is removed;
any other ticket was never used. A write of which nothing is staged any more was put before. For this, who
lands such writes does one after the other.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from headrace.journal.job_columns import JOB_COLUMNS, batch_of
from headrace.journal.journal import Journal
from headrace.kernel.errors import Refused
from headrace.kernel.names import checked_name
from headrace.log.disk import Disk
from headrace.server.staged_run import check_there, named_run
from headrace.stream.staging import StagingArea, read_runs

UNNAMED = "spark-write"
_TICKET = ".ticket"
_ID_CHARACTERS_MAX = 150


class LandedJobs(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be put: a batch of a query, or a whole write. `runs` are names that the node gave."""

    query: str
    runs: list[str]
    batch: int = 0
    writer: str = "default"
    whole: bool = False
    write_id: str | None = None

    def check(self) -> None:
        checked_name(self.query, "id of a query")
        checked_name(self.writer, "name of a writer")
        if not 0 <= self.batch < 1 << 63:
            raise Refused("batch is a whole number from 0 on")
        if self.whole and self.batch:
            raise Refused("a whole write has no batch but 0")
        if len(self.write_id or "") > _ID_CHARACTERS_MAX:
            raise Refused(f"the id of a write has at most {_ID_CHARACTERS_MAX} characters")

    @property
    def once(self) -> tuple[str, int] | None:
        """What the journal remembers it by; None for a write without an id."""
        if not self.whole:
            return f"spark:{self.writer}:{self.query}", self.batch
        return None if self.write_id is None else (f"spark-write:{self.write_id}", 0)


def land_jobs(journal: Journal, area: StagingArea, wanted: LandedJobs) -> int | None:
    """How many jobs were put; None if that was done before. One at a time for a journal."""
    once = wanted.once
    if once is None:
        return _land_unnamed(journal, area, wanted)
    last = _last_sequence(journal, once[0])
    put = None if last is not None and last >= once[1] else _put(journal, area, wanted, once)
    if wanted.whole:
        area.clear_for_good(wanted.query)
        area.remove_abandoned()
    else:
        area.landed(wanted.query, wanted.batch)
    return put


def _land_unnamed(journal: Journal, area: StagingArea, wanted: LandedJobs) -> int | None:
    last = _last_sequence(journal, UNNAMED) or 0
    for ticket in [*area.path.glob(f"*/*{_TICKET}")]:  # of writes that a crash interrupted
        if int(ticket.stem) <= last:
            area.clear_for_good(ticket.parent.name)
        else:
            Disk().remove(ticket)
    folder = area.folder(wanted.query)
    if not folder.is_dir():
        return None
    ticket = folder / f"{last + 1}{_TICKET}"
    with Disk().opened(ticket, write=True, create=True) as file:
        file.sync()
    Disk().sync_dir(folder)
    put = _put(journal, area, wanted, (UNNAMED, last + 1))
    area.clear_for_good(wanted.query)
    area.remove_abandoned()
    return put


def _put(journal: Journal, area: StagingArea, wanted: LandedJobs, once: tuple[str, int]) -> int:
    folder = area.folder(f"{wanted.query}/{wanted.batch}")
    runs = [named_run(folder, name) for name in wanted.runs]
    check_there(runs)
    jobs: dict[str, Any] = batch_of(pa.Table.from_batches(read_runs(runs, None), JOB_COLUMNS))
    return len(journal.put_batch(**jobs, once=once))


def _last_sequence(journal: Journal, writer: str) -> int | None:
    engine = journal.engine
    return engine.do(lambda now: engine.values.last_sequence(now, writer))  # and it is safe, not only done
