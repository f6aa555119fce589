"""Power cuts under a copy of a journal: it has what it had made durable, and is what its source was then."""

from __future__ import annotations

import os
from bisect import bisect_right
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.journal import Job, JournalSettings, NotWhole, open_journal, sweep
from headrace.journal.copy import follow, unfollow
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import HeadraceError
from headrace.log.disk import Disk
from headrace.log.log import Log
from journal.test_copy import ORIGIN, Line, live
from journal.test_sweep import START_US, all_of, settle_down

from .disks import PowerCut, RecordingDisk

CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))


@pytest.fixture(autouse=True, scope="module")
def _eager() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "_SLACK_EVENTS", 10)
        patch.setattr(sweep, "_STEP_EVENTS", 8)
        yield


@settings(max_examples=1000 if CAMPAIGN else 20, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(PowerCut.KINDS))
def test_after_a_power_cut_at_any_moment_the_copy_is_what_its_source_was(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str
) -> None:
    chance, clock, place = Random(seed), ManualClock(START_US), tmp_path_factory.mktemp("copies")
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
