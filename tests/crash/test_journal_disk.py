"""Disks that are full or fail under a journal."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.journal import JournalSettings, open_journal
from headrace.journal.value_operations import NewValue
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import Broken, DiskFull, HeadraceError
from small_disk import small_disk

from .disks import FailingDisk
from .journal_steps import START_US, STEPS, Held, Step, Worker, held, make_small
from .workload import examples

MIB = 1 << 20
CHANGING = ("write", "create", "allocate", "rename", "mkdir")


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def reopened(path: Path, clock: ManualClock) -> Held:
    with open_journal(path, clock=clock) as journal:
        return held(journal)


def same(found: Held, wanted: Held) -> bool:
    """But for deletions that values in memory only had hidden."""
    return found[:2] == wanted[:2] and found[2] >= wanted[2]


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("kinds", [("allocate",), CHANGING])
@examples(15)
@given(before=STEPS, during=STEPS, after=STEPS, which=st.integers(0, 6))
def test_a_full_disk_refuses_steps_whole_and_they_work_again_when_there_is_room(
    place: Path, kinds: tuple[str, ...], before: list[Step], during: list[Step], after: list[Step], which: int
) -> None:
    """What is in the tail is room that was reserved: writing there does not fail."""
    path = Path(tempfile.mkdtemp(dir=place)) / "journal"
    clock = ManualClock(START_US)
    disk = FailingDisk(None, errno.ENOSPC, kinds=kinds, lasting=True, part=0.5, only=_not_the_tail(kinds))
    worker = Worker(path, clock, disk)
    for step in before:
        worker.do(step)
    disk.fail_at = disk.count + which
    for step in [("put", "a", 40_000, None), *during]:
        known = held(worker.journal)
        try:
            worker.do(step)
        except DiskFull:
            assert held(worker.journal) == known or step[0] in ("care", "pour"), step
    disk.heal()
    for step in after:
        worker.do(step)
    worker.do(("put", "b", 50_000, None))
    known = held(worker.journal)
    worker.journal.close()
    assert same(reopened(path, clock), known)
    shutil.rmtree(path.parent)


def _not_the_tail(kinds: tuple[str, ...]) -> Callable[[str], bool]:
    return (lambda name: True) if kinds == ("allocate",) else (lambda name: not name.startswith("tail"))


@pytest.mark.usefixtures("_small")
@examples(20)
@given(
    before=STEPS, during=STEPS, after=STEPS, code=st.sampled_from([errno.ENOSPC, errno.EIO]), when=st.data()
)
def test_a_disk_that_fails_at_any_operation_loses_nothing_that_was_acknowledged(
    place: Path, before: list[Step], during: list[Step], after: list[Step], code: int, when: st.DataObject
) -> None:
    """The tail's writes fail too: then nobody knows of the step under way, but of all before it."""
    path = Path(tempfile.mkdtemp(dir=place)) / "journal"
    clock = ManualClock(START_US)
    disk = FailingDisk(None, code, part=0.5)
    worker = Worker(path, clock, disk)
    for step in before:
        worker.do(step)
    disk.fail_at = disk.count + when.draw(st.integers(0, 12))
    possible = [held(worker.journal)]
    for step in during + after:
        try:
            worker.do(step)
        except HeadraceError:
            possible.append(held(worker.journal))
        else:
            if worker.journal.engine.usable:  # a broken one acknowledges nothing by going on with the time
                possible = [held(worker.journal)]
    worker.close()
    disk.heal()
    found = reopened(path, clock)
    assert any(same(found, each) for each in possible)
    shutil.rmtree(path.parent)


def test_a_journal_whose_sync_failed_says_so_to_everybody_until_it_is_opened_again(place: Path) -> None:
    disk = FailingDisk(None, errno.EIO, kinds=["sync"])
    journal = open_journal(place / "journal", disk=disk)
    journal.put("before")
    disk.fail_at = disk.count
    with pytest.raises(Broken):
        journal.put("lost")
    for operation in (lambda: journal.put("later"), lambda: journal.set("k", 1), journal.next):
        with pytest.raises(Broken, match="open it again"):
            operation()
    journal.close()
    with open_journal(place / "journal") as journal:
        assert "before" in {job.resource for job in journal.jobs()}
        journal.put("after")


def test_a_sync_that_fails_while_the_tail_is_poured_acknowledges_nothing_afterwards(place: Path) -> None:
    disk = FailingDisk(None, errno.EIO, kinds=["sync"], only=lambda name: name.startswith("tail"))
    journal = open_journal(place / "journal", disk=disk)
    engine = journal.engine
    _results, ticket = engine.run([(lambda now: engine.values.set(now, NewValue(b"k", 1, b"v", 1)), 10)])
    disk.fail_at = disk.count
    with pytest.raises(Broken):
        engine._ledger.pour()
    with pytest.raises(Broken):  # the kernel would say that a second sync is fine
        engine.settle(ticket)
    journal.close()


@pytest.fixture
def full(place: Path) -> Iterator[Path]:
    """A file system of 40 MiB."""
    with small_disk(place / "full", "40m") as path:
        yield path


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_journal_on_a_disk_that_is_really_full_goes_on_when_there_is_room(
    full: Path, durability: str
) -> None:
    settings = JournalSettings(durability=durability)  # type: ignore[arg-type]
    kept = []
    with open_journal(full / "journal", settings) as journal:
        (full / "ballast").write_bytes(bytes(20 * MIB))
        with pytest.raises(DiskFull):
            for number in range(1000):
                journal.put(f"r{number}", value=bytes(200_000))
                kept.append(f"r{number}")
        assert kept
        assert journal.stats().pending == len(kept)
        (full / "ballast").unlink()
        journal.put("with room", value=bytes(100_000))
        assert journal.next()
    with open_journal(full / "journal") as journal:
        assert {job.resource for job in journal.jobs()} == {*kept, "with room"}
