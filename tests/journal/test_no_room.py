"""A journal on a disk that is full: it can be read, and what is refused has changed nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.crash.disks import FailingDisk
from tests.server.fj_asked import Asking

from headrace.journal import Journal, JournalSettings, ledger, open_journal
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import DiskFull
from headrace.log import tail
from headrace.wire.fj import DATA, PERSIST, RANGE, Function
from headrace.wire.fj_many import pack_jobs, pack_keys

SMALL = (1 << 15) + ledger._ONE_MORE_BYTES


@pytest.fixture
def disk() -> FailingDisk:
    """Nothing on it can grow."""
    return FailingDisk(None, errno.ENOSPC, kinds=["allocate"], lasting=True)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000_000)


@pytest.fixture(params=["fsync", "os"])
def journal(place: Path, disk: FailingDisk, clock: ManualClock, monkeypatch, request) -> Iterator[Journal]:
    """One with a small tail, nothing in the background, and a dead job of each of 300 resources."""
    monkeypatch.setattr(tail, "TAIL_BYTES", SMALL)
    monkeypatch.setattr(ledger, "TAIL_BYTES", SMALL)
    monkeypatch.setattr(ledger.Ledger, "start", lambda self: None)
    settings = JournalSettings(max_attempts=1, durability=request.param)
    with open_journal(place / "journal", settings, disk=disk, clock=clock) as journal:
        journal.put_batch([f"{n}:" + "d" * 60 for n in range(300)])
        for id_ in journal.next_batch(300)["id"].to_pylist():
            journal.fail(id_)
        journal.put("pending")
        journal.set("k", "v" * 400)
        journal.engine.pour()
        yield journal
        disk.heal()


def fill(journal: Journal, disk: FailingDisk) -> None:
    disk.fail_at = disk.count
    for size in (1000, 100, 1):
        with pytest.raises(DiskFull):
            for number in range(10_000):
                journal.set(f"x{size}:{number}", bytes(size))


def test_what_only_reads_is_not_refused(journal: Journal, disk: FailingDisk) -> None:
    fill(journal, disk)
    assert journal.get("k").value == "v" * 400
    assert journal.probe("k") is not None
    assert next(journal.range("k", "k")).key == "k"
    assert journal.stats().pending == 1
    assert len(list(journal.jobs())) == 301
    assert Asking(journal)(Function.GET, b"k", DATA).pairs
    with pytest.raises(DiskFull):
        journal.next()
    assert journal.stats().pending == 1


def test_who_reads_is_not_told_that_what_time_has_changed_could_not_be_written(
    journal: Journal, disk: FailingDisk, clock: ManualClock
) -> None:
    journal.put_batch([f"leased {n}" for n in range(200)], priority=1)
    journal.next_batch(200, lease="1m")
    journal.engine.pour()
    fill(journal, disk)
    clock.advance(61)
    assert journal.stats().dead == 500
    disk.heal()
    journal.close()
    with open_journal(journal.engine.path, clock=clock) as again:
        assert again.stats().dead == 500


@pytest.mark.parametrize(
    "operation",
    [
        lambda journal: journal.redrive(),
        lambda journal: Asking(journal)(Function.TRUNCATE, b"k", PERSIST, type=3, value=b"\0\0\1\0"),
        lambda journal: Asking(journal)(
            Function.SET,
            b":1:0",
            PERSIST | RANGE,
            upper=b"",
            type=1,
            value=pack_jobs([(b"%d" % n, 1, b"") for n in range(300)]),
        ),
    ],
)
def test_what_brings_more_than_there_is_room_for_changes_nothing(
    journal: Journal, disk: FailingDisk, operation: Callable[[Journal], object]
) -> None:
    disk.fail_at = disk.count
    with pytest.raises(DiskFull):
        operation(journal)
    stats = journal.stats()
    assert (stats.dead, stats.pending) == (300, 1)
    assert journal.get("k").value == "v" * 400
    disk.heal()
    operation(journal)


def test_many_leases_and_their_end_over_fj_are_refused_whole(journal: Journal, disk: FailingDisk) -> None:
    journal.redrive()
    journal.engine.pour()
    ask = Asking(journal)
    disk.fail_at = disk.count
    with pytest.raises(DiskFull):
        ask(Function.NEXT, b"", RANGE, upper=b"")
    assert journal.stats().pending == 301
    disk.heal()
    reply = ask(Function.NEXT, b"", RANGE, upper=b"")
    journal.engine.pour()
    disk.fail_at = disk.count
    done = pack_keys([pair.key for pair in reply.pairs or ()])
    with pytest.raises(DiskFull):
        ask(Function.DELETE, b"", PERSIST, timeout=reply.timeout, type=1, value=done)
    assert journal.stats().leased == 301
    disk.heal()
    assert not ask(Function.DELETE, b"", PERSIST, timeout=reply.timeout, type=1, value=done).pairs


@pytest.mark.parametrize(
    "operation",
    [
        lambda journal: journal.put("new"),
        lambda journal: journal.next(),
        lambda journal: journal.set("k", "new"),
        lambda journal: journal.done(journal.engine.state.jobs.worked_on[b"longer"].id),
    ],
)
def test_what_is_refused_because_leases_ended_has_not_been_done(
    journal: Journal, disk: FailingDisk, clock: ManualClock, operation: Callable[[Journal], object]
) -> None:
    journal.put_batch([f"leased {n}:" + "d" * 300 for n in range(200)], priority=1)
    journal.put("longer", priority=1)
    journal.next_batch(200, lease="1m")
    journal.next(lease="1h")
    journal.engine.pour()
    disk.fail_at = disk.count
    before = journal.stats().leased
    clock.advance(61)
    with pytest.raises(DiskFull):
        operation(journal)
    stats = journal.stats()
    assert (before, stats.leased, stats.pending, stats.dead) == (201, 1, 1, 500)
    assert journal.get("k").value == "v" * 400


@pytest.mark.parametrize("count", [1, 3])
def test_long_resources_are_leased_and_done_as_far_as_there_is_room(
    journal: Journal, disk: FailingDisk, count: int
) -> None:
    """What was taken is told, and what is told was taken."""
    journal.put_batch([f"{n}:" + "r" * 5000 for n in range(300)], domain="long", priority=1)
    journal.engine.pour()
    disk.fail_at = disk.count
    taken: set[int] = set()
    with pytest.raises(DiskFull):
        while True:
            taken |= set(journal.next_batch(count, "long")["id"].to_pylist())
    leased = set(journal.engine.state.jobs.leased)
    assert leased == taken
    assert leased
    with pytest.raises(DiskFull):
        journal.done_batch(leased)
    assert set(journal.engine.state.jobs.leased) == leased
    disk.heal()
    assert journal.done_batch(leased) == []


def test_a_series_of_long_resources_is_leased_as_a_whole_or_not_at_all(
    journal: Journal, disk: FailingDisk
) -> None:
    journal.put_batch([f"{n}:" + "r" * 5000 for n in range(300)], domain="long", priority=1)
    journal.engine.pour()
    disk.fail_at = disk.count
    with pytest.raises(DiskFull):
        journal.next_batch(300, "long")
    assert journal.stats().leased == 0
    disk.heal()
    assert journal.next_batch(300, "long").num_rows == 300


def test_a_batch_that_is_refused_is_not_remembered_as_put(journal: Journal, disk: FailingDisk) -> None:
    """However much room there is: for all of it, or for a part."""
    refused = put = 0
    for left in range(0, 3000, 40):
        disk.heal()
        journal.engine.pour()
        journal.set("fills", bytes(journal.engine._ledger.free - left - 200))
        names = [f"{left}:{n}" for n in range(5)]
        before = journal.stats().pending
        disk.fail_at = disk.count
        try:
            journal.put_batch(names, once=("w" * 200, left))
            put += 1
        except DiskFull:
            refused += 1
            assert journal.stats().pending == before
            disk.heal()
            assert len(journal.put_batch(names, once=("w" * 200, left))) == 5
        assert journal.stats().pending == before + 5
    assert put
    assert refused
