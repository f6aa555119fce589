"""A journal in a ring of containers that is full: it can be opened, and worked off, and is a ring again."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.journal import Journal, JournalSettings, ledger, open_journal
from headrace.kernel.errors import LogFull
from headrace.kernel.limits import CONTAINER_BYTES_MIN
from headrace.log.settings import Containers

LIMIT = 4
RING = JournalSettings(containers=Containers(bytes=CONTAINER_BYTES_MIN, initial=2, limit=LIMIT))


@pytest.fixture(autouse=True)
def _nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger.Ledger, "start", lambda self: None)


def fill(journal: Journal) -> int:
    """Jobs until the ring has no room, and one in the tail beyond that; how many."""
    count = 0
    with suppress(LogFull):
        while True:
            journal.put_batch([f"{count + n}" for n in range(100)], domain="d", values=[bytes(1000)] * 100)
            count += 100
            journal.engine.pour()
    journal.put("last", domain="d")
    return count + 1


def containers(path: Path) -> int:
    return len([*path.glob("log/*.seg"), *path.glob("log/*.active"), *path.glob("log/*.free")])


@pytest.fixture
def full(place: Path) -> tuple[Path, int]:
    """What a crash leaves of a journal whose ring and tail are full of what is alive."""
    with open_journal(place / "j", RING) as journal:
        count = fill(journal)
        shutil.copytree(place / "j", place / "full")
        with pytest.raises(LogFull):
            journal.close()
    return place / "full", count


def work_off(journal: Journal) -> int:
    """Every job is done, and the background has its turn now and then; how many."""
    count = 0
    while journal.next("d", delete=True):
        count += 1
        if count % 50 == 0:
            with suppress(LogFull):
                journal.engine.pour()
            journal.engine._care()
    return count


def test_a_full_ring_with_a_tail_is_opened_and_worked_off(full: tuple[Path, int]) -> None:
    path, count = full
    with open_journal(path) as journal:
        assert work_off(journal) == count
        journal.engine.pour()
    with open_journal(path) as journal:
        assert journal.stats().pending == 0


def test_it_has_no_more_containers_than_before_when_it_was_worked_off(full: tuple[Path, int]) -> None:
    path, _count = full
    with open_journal(path) as journal:
        work_off(journal)
        assert containers(path) <= LIMIT
        fill(journal)
        assert containers(path) <= LIMIT
        journal.let_go()


def test_a_full_ring_gets_room_by_the_sweep_that_says_things_anew(place: Path) -> None:
    """What it says has to be in the log before the old sayings go."""
    with open_journal(place / "j", RING) as journal:
        journal.put("lives", domain="other")
        count = fill(journal)
        for _ in range(count):
            journal.next("d", delete=True)
        with pytest.raises(LogFull):
            journal.engine.pour()
        journal.engine._care()
        shutil.copytree(place / "j", place / "killed")
        journal.engine.pour()
    assert containers(place / "j") <= LIMIT
    with open_journal(place / "killed") as journal:
        assert [job.resource for job in journal.jobs()] == ["lives"]
