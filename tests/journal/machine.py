"""A machine that does the same to a journal and to its models, and compares every answer.

Here is what nobody may notice: time passing, the tail being poured, the log being swept, values leaving
memory, the journal being closed and opened, or killed. The rules for jobs and values are in job_rules.py and
value_rules.py.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headrace.journal import Journal, JournalSettings, open_journal
from headrace.kernel.backoff import Backoff
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import HeadraceError

from .models import JobModel, ValueModel

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000

seconds = st.sampled_from([0, 1, 2, 5, 10, 60])
some_seconds = st.none() | seconds
small = st.none() | st.integers(-5, 5) | st.booleans() | st.sampled_from([1.5, "text", b"bytes", 2**63 - 1])
large = st.builds(lambda letter, size: letter * size, st.sampled_from([b"x", b"y"]), st.integers(130, 400))
data = small | large
rarely = st.sampled_from([False, False, False, True])
mostly = st.sampled_from([True, True, True, False])


class Machine(RuleBasedStateMachine):
    root: Path
    """Where the journals of all examples are."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir=self.root)) / "0"
        self.clock = ManualClock(START_US)
        self.journal: Journal

    @initialize(
        attempts=st.sampled_from([None, None, 1, 2]),
        keep=rarely,
        durability=st.sampled_from(["fsync", "fsync", "os", "interval"]),
    )
    def begin(self, attempts: int | None, keep: bool, durability: Any) -> None:
        retry = Backoff(first_s=1.0, longest_s=4.0)
        self.settings = JournalSettings(
            durability=durability,
            max_attempts=attempts,
            retry=retry,
            keep_highest_priority=keep,
            memory_bytes=600,
            keep_deleted="3650d",
            lease="30s",
        )
        self.jobs = JobModel(attempts, retry, keep)
        self.values = ValueModel()
        self.journal = open_journal(self.path, self.settings, clock=self.clock)

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            try:
                if sys.exc_info()[0] is None:  # else there is something worse to tell
                    self.look()
                    self.reopen()
                    self.look()
            finally:
                self.journal.close()
        shutil.rmtree(self.path.parent)

    @property
    def now(self) -> int:
        return self.clock.now_us()

    # --- what nobody may notice

    @rule(step=st.sampled_from([0.5, 1, 1, 2, 5, 10, 60]))
    def time_passes(self, step: float) -> None:
        self.clock.advance(step)

    @rule()
    def pour(self) -> None:
        self.journal.engine._ledger.pour()

    @rule()
    def pour_and_sweep(self) -> None:
        self.journal.engine._ledger.pour()
        self.journal.engine._care()

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.clock.advance(0.001)  # as it would: ids of jobs in memory only are made of the time
        self.journal = open_journal(self.path, clock=self.clock)
        self._opened()

    @rule()
    def kill(self) -> None:
        """Whoever opens it next finds the files as they stand now."""
        with self.journal.engine._ledger._pouring:
            copy = self.path.with_name(str(int(self.path.name) + 1))
            shutil.copytree(self.path, copy)
        self.journal.close()
        shutil.rmtree(self.path)
        self.path = copy
        self.clock.advance(0.001)
        self.journal = open_journal(self.path, self.settings, clock=self.clock)
        self._opened()

    def _opened(self) -> None:
        self.jobs.reopen()
        self.values.reopen()

    # --- comparing

    @rule()
    def look(self) -> None:
        """Everything there is."""
        self.look_at_jobs()
        self.look_at_values()

    def look_at_jobs(self) -> None: ...

    def look_at_values(self) -> None: ...

    def both(self, journal: Callable[[], object], model: Callable[[], object]) -> None:
        """The same answer, or an error of the same class."""
        answers: list[object] = []
        for each in (journal, model):
            try:
                answers.append(each())
            except HeadraceError as error:
                answers.append(type(error).__name__)
        assert answers[0] == answers[1]
        assert type(answers[0]) is type(answers[1])


def counted(things: Iterable[Any]) -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for thing in things:
        counts[thing] = counts.get(thing, 0) + 1
    return counts
