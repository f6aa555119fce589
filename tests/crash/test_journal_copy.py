"""Power cuts and failing disks under a copy of a journal: it is what its source was, at some moment."""

from __future__ import annotations

import errno
import os
import tempfile
from bisect import bisect_right
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.journal import Job, JournalSettings, NotWhole, open_journal, sweep
from headrace.journal.copy import follow, unfollow
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import HeadraceError
from headrace.log.disk import Disk
from headrace.log.log import Log
from journal.test_copy import ORIGIN, Line, copied, live
from journal.test_sweep import START_US, all_of, settle_down

from .disks import FailingDisk, PowerCut, RecordingDisk

CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))


@pytest.fixture(autouse=True, scope="module")
def _eager() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "_SLACK_EVENTS", 10)
        patch.setattr(sweep, "_STEP_EVENTS", 8)
        yield


@settings(
    max_examples=1000 if CAMPAIGN else 20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 1 << 32), st.sampled_from(PowerCut.KINDS))
def test_after_a_power_cut_at_any_moment_the_copy_is_what_its_source_was(
    place: Path, seed: int, kind: str
) -> None:
    chance, clock, place = Random(seed), ManualClock(START_US), Path(tempfile.mkdtemp(dir=place))
    (place / "before").mkdir()
    (place / "after").mkdir()
    disk = RecordingDisk(place / "before")
    moments, states, jobs = [0], [([], [])], list[Job]()
    reached = list[tuple[int, int]]()
    """After so many operations of the disk everything below this index was durable, and the copy whole."""
    with open_journal(place / "j", JournalSettings(durability="os"), clock=clock) as journal:
        copy = follow(disk, place / "before" / "j", ORIGIN)
        line = Line(journal, copy)
        for _ in range(60):
            live(journal, chance, jobs)
            clock.advance(0.1)
            moments.append(journal.engine._ledger.upcoming)
            states.append(all_of(journal))  # type: ignore[arg-type]
            if chance.random() < 0.3:
                settle_down(journal)
                line.send(chance.randint(1, 5))
                if (place / "before" / "j" / "log" / "positions" / "state").exists():
                    reached.append((len(disk.journal), copy.next_index))
        line.close()
        when = chance.randint(0, len(disk.journal))
        copy.close()
        disk.after_power_cut(place / "after", when, PowerCut(kind, seed))
        durable = max((index for at, index in reached if at <= when), default=None)
        try:
            unfollow(Disk(), place / "after" / "j")
        except NotWhole:
            assert durable is None
        except HeadraceError:  # not even a beginning of it was safe
            assert durable is None
        else:
            with Log.open(place / "after" / "j" / "log", read_only=True) as log:
                end = log.next_index
            assert end >= (durable or 0)
            with open_journal(place / "after" / "j", clock=clock) as promoted:
                assert all_of(promoted) == states[bisect_right(moments, end) - 1]


@settings(
    max_examples=500 if CAMPAIGN else 20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 1 << 32), st.sampled_from([errno.ENOSPC, errno.EIO]), st.integers(0, 80))
def test_a_disk_that_is_full_or_fails_costs_time_and_nothing_else(
    place: Path, seed: int, code: int, fail_at: int
) -> None:
    chance, place, jobs = Random(seed), Path(tempfile.mkdtemp(dir=place)), list[Job]()
    disk = FailingDisk(fail_at, code, part=chance.random())
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        for _ in range(3):
            with suppress(HeadraceError):
                copy = follow(disk, place / "copy", ORIGIN)
                with closing(copy):
                    line = Line(journal, copy)
                    for _ in range(10):
                        live(journal, chance, jobs)
                        settle_down(journal)
                        line.send(3)
            disk.heal()
        copied(journal, place / "copy")
        unfollow(Disk(), place / "copy")
        before = all_of(journal)
    with open_journal(place / "copy") as promoted:
        assert all_of(promoted) == before
