"""Power cuts of a journal: what was acknowledged is there, and what was under way happened or did not."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.journal import open_journal
from headrace.kernel.clock import ManualClock

from .disks import PowerCut, RecordingDisk
from .journal_steps import NOTHING, START_US, STEPS, Held, Step, Worker, held, make_small
from .workload import examples

SEEDS = st.integers(0, 2**32 - 1)
LIVES = st.lists(st.tuples(STEPS, SEEDS, st.sampled_from(PowerCut.KINDS), SEEDS), min_size=1, max_size=3)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def lived(
    path: Path, clock: ManualClock, steps: list[Step], durability: Any
) -> tuple[RecordingDisk, list[Any]]:
    """One life: the disk that saw it, and (operations so far, time, what was held) after each step."""
    disk = RecordingDisk(path)
    moments = []
    worker = Worker(path / "journal", clock, disk, durability)
    moments.append((len(disk.journal), clock.now_us(), held(worker.journal)))
    for step in steps:
        worker.do(step)
        moments.append((len(disk.journal), clock.now_us(), held(worker.journal)))
    worker.close()
    return disk, moments


def left(path: Path, now_us: int) -> Held:
    """What is found after the cut."""
    with open_journal(path / "journal", clock=ManualClock(now_us)) as journal:
        return held(journal)


@examples(30)
@given(LIVES, st.sampled_from(["fsync", "fsync", "os"]))
def test_a_power_cut_leaves_what_was_acknowledged_and_never_half_of_a_step(
    place: Path, lives: list[tuple[list[Step], int, str, int]], durability: str
) -> None:
    root = Path(tempfile.mkdtemp(dir=place))
    path = root / "0"
    path.mkdir()
    clock, known = ManualClock(START_US), [NOTHING]
    for number, (steps, moment, kind, seed) in enumerate(lives, 1):
        disk, moments = lived(path, clock, steps, durability)
        when = moment % (len(disk.journal) + 1)
        path = root / str(number)
        path.mkdir()
        disk.after_power_cut(path, when, PowerCut(kind, seed))
        done = [at for at, (operations, _, _) in enumerate(moments) if operations <= when]
        last = done[-1] if done else -1
        now = moments[max(last, 0)][1]
        clock = ManualClock(now)
        histories = [*known, *[each for _, _, each in moments[: last + 2]]]
        possible = histories if durability == "os" else histories[-2 if last + 1 < len(moments) else -1 :]
        copy = root / f"{number}-copy"
        shutil.copytree(path, copy)
        found = left(copy, now)
        assert any(agree(found, each, now) for each in possible), (when, last)
        known = [found]
    shutil.rmtree(root)


def agree(found: Held, wanted: Held, now: int) -> bool:
    """Values that have expired need not come back. A deletion that a value in memory only had hidden may."""
    alive = frozenset(value for value in wanted[1] if value[3] is None or value[3] > now)
    return found[0] == wanted[0] and found[1] == alive and found[2] >= wanted[2]
