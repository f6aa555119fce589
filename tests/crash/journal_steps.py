"""Random steps on a journal, and all that it holds as one value that can be compared."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from headrace.journal import Job, Journal, JournalSettings, ledger, open_journal, residents, sweep
from headrace.journal.rows import Where
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import DiskFull, Refused, Retryable
from headrace.log import tail
from headrace.log.disk import Disk

START_US = 1_700_000_000_000_000
KEYS = st.sampled_from(["a", "b", "c"])
SIZES = st.sampled_from([0, 3, 40, 700])
Step = tuple[Any, ...]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, SIZES, st.sampled_from([None, None, 5])),
        st.tuples(st.just("put_batch"), st.lists(KEYS, min_size=1, max_size=3)),
        st.tuples(st.just("next"), st.sampled_from([1, 60]), st.booleans()),
        st.tuples(st.just("end"), st.sampled_from(["done", "fail", "extend"])),
        st.tuples(st.just("cancel"), KEYS),
        st.tuples(st.just("redrive")),
        st.tuples(st.just("set"), KEYS, SIZES, st.sampled_from([None, None, 3]), st.booleans()),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("delete"), KEYS, st.booleans()),
        st.tuples(st.just("link"), KEYS, KEYS),
        st.tuples(st.just("rename"), KEYS, KEYS),
        st.tuples(st.just("pour")),
        st.tuples(st.just("pour")),
        st.tuples(st.just("care")),
        st.tuples(st.just("time")),
    ),
    min_size=1,
    max_size=30,
)
Held = tuple[frozenset[Any], frozenset[Any], frozenset[Any]]
"""Jobs, values, and remembered deletions."""
NOTHING: Held = (frozenset(), frozenset(), frozenset())


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep with nearly no slack, values that leave memory early, and nothing in the background."""
    monkeypatch.setattr(tail, "TAIL_BYTES", 1 << 15)
    monkeypatch.setattr(ledger, "TAIL_BYTES", 1 << 15)
    monkeypatch.setattr(ledger.Ledger, "start", lambda self: None)
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 3)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 5)
    monkeypatch.setattr(residents, "_WORTH_BYTES", 3)


class Worker:
    """Does steps; `before` and `after` of each are what it may be, if the step is cut short."""

    def __init__(self, path: Path, clock: ManualClock, disk: Disk, durability: Any = "fsync") -> None:
        settings = JournalSettings(durability=durability, max_attempts=2, memory_bytes=900)
        self.clock = clock
        self.journal = open_journal(path, settings, clock=clock, disk=disk)
        self.taken: list[Job] = []
        self.number = 0

    def do(self, step: Step) -> None:
        """What is refused because of what was asked is refused; what the disk refuses is raised."""
        name, *words = step
        try:
            getattr(self, f"_{name}")(*words)
        except DiskFull:
            raise
        except (Refused, Retryable):
            pass

    def close(self) -> None:
        with suppress(Exception):  # what was acknowledged is on the disk, whatever closing says
            self.journal.close()

    def _value(self, size: int) -> bytes:
        self.number += 1
        return f"{self.number}:".encode().ljust(size, b".")

    def _put(self, key: str, size: int, ttl: int | None) -> None:
        self.journal.put(key, value=self._value(size), ttl=ttl)

    def _put_batch(self, keys: list[str]) -> None:
        self.journal.put_batch(keys)

    def _next(self, lease: int, delete: bool) -> None:
        job = self.journal.next(lease=lease, delete=delete)
        if isinstance(job, Job):
            self.taken.append(job)

    def _end(self, how: str) -> None:
        if self.taken:
            job = self.taken[-1] if how == "extend" else self.taken.pop()
            {"done": job.done, "fail": lambda: job.fail(0), "extend": lambda: job.extend(9)}[how]()

    def _cancel(self, key: str) -> None:
        self.journal.cancel(key)

    def _redrive(self) -> None:
        self.journal.redrive()

    def _set(self, key: str, size: int, ttl: int | None, persist: bool) -> None:
        self.journal.set(key, self._value(size), ttl=ttl, persist=persist or size > 3)

    def _get(self, key: str) -> None:
        self.journal.get(key, lease=10, touch=True)

    def _delete(self, key: str, at_once: bool) -> None:
        self.journal.delete(key, now=at_once)

    def _link(self, key: str, other: str) -> None:
        self.journal.link(key, other)

    def _rename(self, key: str, other: str) -> None:
        self.journal.rename(key, other)

    def _pour(self) -> None:
        self.journal.engine._ledger.pour()

    def _care(self) -> None:
        self.journal.engine._ledger.pour()
        self.journal.engine._care()

    def _time(self) -> None:
        self.clock.advance(2)


def held(journal: Journal) -> Held:
    """All that has to survive. Nothing is changed by looking, not even by the time."""
    engine = journal.engine
    now = engine.clock.now_us()
    jobs = frozenset(
        (
            row.id,
            row.resource,
            row.domain,
            Where.PENDING if row.where == Where.BESIDE else Where(row.where),
            row.priority,
            row.due,
            row.attempts,
            row.lease,
            row.expires,
            engine.read(row),
        )
        for row in engine.state.jobs.rows()
        if not row.volatile
    )
    values = frozenset(
        (
            frozenset(row.keys),
            row.type,
            engine.read(row),
            row.expires,
            row.ttl,
            row.stamp,
            row.created,
            row.modified,
            row.lease,
        )
        for row in engine.state.values.by_key.values()
        if not row.volatile and (row.expires is None or row.expires > now)
    )
    deleted = frozenset((key, each.stamp) for key, each in engine.state.values.deleted.items())
    return jobs, values, deleted
