"""The journal: jobs without duplicates, and keys with values, in one durable place.

    jobs = store.journal("pages")
    jobs.put("https://example.com/a", priority=10, after="10s")
    with jobs.next("example.com", lease="2h") as job:
        if job: ...

Every operation happens as a whole, and is on the disk when it returns. One process has a journal open at a
time; several threads may use it at once, and then share the disk's syncs. `headrace journal serve` shares it
with other processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace.journal.batch_verbs import BatchVerbs
from headrace.journal.engine import Engine
from headrace.journal.job import Data
from headrace.journal.rows import JobRow, Where
from headrace.journal.settings import JournalSettings
from headrace.journal.value import decode
from headrace.journal.value_verbs import ValueVerbs
from headrace.kernel.clock import Clock
from headrace.kernel.errors import HeadraceError
from headrace.log.disk import Disk


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as a list of jobs tells it."""

    id: int
    resource: str
    domain: str
    state: str
    """pending, leased or dead."""
    priority: int
    due_us: int
    attempts: int
    until_us: int | None
    """When its lease ends; for a dead job when it died."""
    value: Data


@dataclass(frozen=True, slots=True)
class Stats:
    pending: int
    ready: int
    leased: int
    dead: int
    values: int
    by_priority: dict[int, int]
    by_domain: dict[str, int]
    oldest_due_us: int | None
    """Of the pending jobs."""
    next_at_us: int | None
    done: int
    dropped: int
    died: int
    """Since the journal was opened."""
    memory_bytes: int
    evicted: int
    log_bytes: int
    log_events: int


class Journal(BatchVerbs, ValueVerbs):
    def __init__(self, name: str, engine: Engine) -> None:
        """Use `store.journal`, or `open_journal`."""
        self.name = name
        self._engine = engine

    @property
    def engine(self) -> Engine:
        """For servers, which run operations without waiting for each."""
        return self._engine

    @property
    def settings(self) -> JournalSettings:
        return self._engine.settings

    def jobs(self) -> Iterator[JobInfo]:
        """All jobs: pending, leased and dead ones."""
        for row in self._engine.do(self._rows, 0):
            info = self._engine.do(lambda now: self._info(row), 0)  # noqa: B023
            if info is not None:
                yield info

    def stats(self) -> Stats:
        return self._engine.do(self._stats, 0)

    @property
    def closed(self) -> bool:
        return self._engine.closed

    @property
    def usable(self) -> bool:
        """False once it is closed, or its disk has failed: then the store opens it anew for whoever asks."""
        return self._engine.usable

    def close(self) -> None:
        """Make everything durable, and give the journal free."""
        self._engine.close()

    def let_go(self) -> None:
        """Give it free although it has failed: what it could not make durable was not acknowledged."""
        with suppress(HeadraceError):
            self._engine.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside

    def _rows(self, now: int) -> list[JobRow]:
        self._engine.jobs.tick(now)
        return list(self._engine.state.jobs.rows())

    def _info(self, row: JobRow) -> JobInfo | None:
        if row.where == Where.GONE:  # perhaps only replaced meanwhile, by a row that says something new
            found = self._engine.state.jobs.find(row.resource, row.id)
            if found is None:
                return None
            row = found
        return JobInfo(
            row.id,
            row.resource.decode("utf-8", "surrogateescape"),
            row.domain,
            {Where.LEASED: "leased", Where.DEAD: "dead"}.get(Where(row.where), "pending"),
            row.priority,
            row.due,
            row.attempts,
            row.lease or None,
            decode(row.type, self._engine.read(row)),
        )

    def _stats(self, now: int) -> Stats:
        engine, jobs = self._engine, self._engine.state.jobs
        engine.jobs.tick(now)
        engine.values.tick(now)
        by_domain: dict[str, int] = {}
        ready, oldest = 0, None
        for row in jobs.pending.values():
            by_domain[row.domain] = by_domain.get(row.domain, 0) + 1
            ready += row.due <= now and row.where == Where.PENDING
            oldest = row.due if oldest is None or row.due < oldest else oldest
        info = engine.log.info()
        return Stats(
            pending=len(jobs.pending),
            ready=ready,
            leased=len(jobs.leased),
            dead=len(jobs.dead),
            values=engine.state.values.count,
            by_priority={priority: n for priority, n in enumerate(jobs.depth) if n},
            by_domain=by_domain,
            oldest_due_us=oldest,
            next_at_us=engine.jobs.next_time(None),
            done=jobs.finished["done"],
            dropped=jobs.finished["dropped"],
            died=jobs.finished["died"],
            memory_bytes=engine.state.residents.bytes,
            evicted=engine.state.residents.evicted,
            log_bytes=info.bytes,
            log_events=info.next_index - engine.swept,
        )


def open_journal(
    path: str | Path,
    settings: JournalSettings | None = None,
    *,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> Journal:
    """Open the journal in a directory of its own, without a store."""
    place = Path(path)
    return Journal(place.name, Engine.open(place, settings, clock=clock, disk=disk))
