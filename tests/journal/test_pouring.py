"""What is poured into the log: operations as a whole, whatever their size, and also in containers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.journal import Journal, JournalSettings, batch_operations, open_journal, pouring
from headrace.journal.errors import BadRequest
from headrace.journal.events import Event, Kind, from_batch
from headrace.journal.new_jobs import NewJobs
from headrace.journal.pouring import _cut, table_of
from headrace.journal.settings import VALUE_BYTES_MAX
from headrace.kernel.errors import TooLarge
from headrace.log.settings import Containers

RING = JournalSettings(durability="os", containers=Containers(bytes=512 << 10))


@pytest.fixture
def killed(place: Path) -> Callable[[Journal], Path]:
    def killed(journal: Journal) -> Path:
        """The journal as its files are now."""
        with journal.engine._ledger._pouring:
            shutil.copytree(journal.engine.path, place / "killed")
        return place / "killed"

    return killed


@pytest.fixture
def ring(place: Path) -> Iterator[Journal]:
    with open_journal(place / "journal", RING) as journal:
        yield journal


def jobs_of(path: Path) -> list[str]:
    with open_journal(path) as journal:
        return [job.resource for job in journal.jobs()]


def frames(journal: Journal) -> list[tuple[int, int]]:
    """Where each part that is appended at once begins and ends."""
    told: list[tuple[int, int]] = []
    append = journal.engine.log.append

    def noting(events, **how):
        base = append(events, **how)
        told.append((base, base + events.num_rows))
        return base

    journal.engine.log.append = noting  # type: ignore[method-assign]
    return told


# --- one operation is there as a whole


def test_what_is_poured_is_one_group_however_many_batches_it_takes(place: Path, monkeypatch) -> None:
    monkeypatch.setattr(pouring, "_BATCH_EVENTS", 1000)
    monkeypatch.setattr(batch_operations, "SERIES_EVENTS", 1000)
    with open_journal(place / "journal", JournalSettings(durability="os")) as journal:
        appended = frames(journal)
        journal.put_batch([f"r{n}" for n in range(3000)], once=("spark", 7))
        journal.engine.pour()
        assert appended == [(0, 3001)]
        assert [batch.records.num_rows for batch in journal.engine.log.read()] == [1, 1000, 1000, 1000]


def test_what_a_crash_left_in_the_tail_is_appended_as_one_group(
    place: Path, killed: Callable[[Journal], Path], monkeypatch
) -> None:
    monkeypatch.setattr(pouring, "_BATCH_EVENTS", 1000)
    monkeypatch.setattr("headrace.journal.ledger.Ledger.start", lambda self: None)
    with open_journal(place / "journal", JournalSettings(durability="os")) as journal:
        journal.put_batch([f"r{n}" for n in range(3000)])
        journal.put("last")
        path = killed(journal)
    with open_journal(path) as again:
        assert len(list(again.jobs())) == 3001
        assert [batch.records.num_rows for batch in again.engine.log.read()] == [1000, 1000, 1000, 1]


def test_values_that_no_single_array_takes_become_several_batches(monkeypatch) -> None:
    monkeypatch.setattr(pouring, "_BATCH_BYTES", 1000)
    events = [Event(Kind.SET, 1, key=b"k%d" % n, value=bytes(300)) for n in range(10)]
    table = table_of(events, 3000)
    assert [batch.num_rows for batch in table.to_batches()] == [2] * 5
    assert [event for batch in table.to_batches() for event in from_batch(batch)] == events


# --- containers


def test_a_batch_that_no_container_holds_is_refused_and_changes_nothing(ring: Journal, place: Path) -> None:
    with pytest.raises(TooLarge, match="fewer at a time"):
        ring.put_batch([f"r{n}" for n in range(3000)], values=[bytes(1000)] * 3000, once=("w", 1))
    assert not list(ring.jobs())
    assert (
        len(ring.put_batch([f"r{n}" for n in range(300)], values=[bytes(1000)] * 300, once=("w", 1))) == 300
    )
    ring.close()
    assert len(jobs_of(place / "journal")) == 300


def test_a_value_has_half_a_container_at_most(ring: Journal, place: Path) -> None:
    half = RING.containers.bytes // 2
    for call in (
        lambda: ring.set("k", bytes(half + 1)),
        lambda: ring.put("r", value=bytes(half + 1)),
        lambda: ring.put_batch(["r"], values=[bytes(half + 1)]),
        lambda: ring.redrive_as([(1, "r", bytes(half + 1), 1)]),
    ):
        with pytest.raises(TooLarge):
            call()
    ring.set("b", b"")
    with pytest.raises(BadRequest):
        ring.resize("b", half + 1)
    ring.put("r" * 65_535, value=bytes(half), domain="é" * 32_000)
    ring.close()
    assert jobs_of(place / "journal") == ["r" * 65_535]


def test_operations_that_share_a_pour_are_cut_between_them(ring: Journal, place: Path) -> None:
    appended = frames(ring)
    engine = ring.engine
    with engine._ledger._pouring:  # all of them come in one pour
        ends = []
        for number in range(12):
            ring.put_batch([f"{number}:{n}" for n in range(200)], values=[bytes(1000)] * 200)
            ends.append(engine._ledger.upcoming)
    engine.pour()
    assert len(appended) > 1
    assert {end for _begin, end in appended} <= set(ends)
    ring.close()
    assert len(jobs_of(place / "journal")) == 12 * 200


def test_operations_of_many_threads_in_one_record_are_cut_between_them(place: Path, monkeypatch) -> None:
    """With durability fsync, what all have queued is one record of the tail."""
    monkeypatch.setattr("headrace.journal.ledger.Ledger.start", lambda self: None)
    settings = JournalSettings(containers=RING.containers)
    with open_journal(place / "journal", settings) as journal:
        appended, engine, ends = frames(journal), journal.engine, []
        for number in range(8):

            def put(now: int, number: int = number) -> list[int]:
                names = [b"%d:%d" % (number, n) for n in range(200)]
                return engine.jobs.put_many(now, NewJobs(names, "", 1, now, 1, bytes(1000), now))

            engine.start(put, 200 * 1200)
            ends.append(engine._ledger.upcoming)
        engine.pour()
        assert len(appended) > 1
        assert {end for _begin, end in appended} <= set(ends)


def test_leases_of_more_jobs_than_a_container_holds_are_taken_all_the_same(
    ring: Journal, killed: Callable[[Journal], Path]
) -> None:
    for number in range(10):
        ring.put_batch([f"{number}:{n}" for n in range(2000)])
    table = ring.next_batch(20_000)
    assert table.num_rows == 20_000
    path = killed(ring)
    assert ring.done_batch(table["id"]) == []
    ring.engine.pour()
    with open_journal(path) as again:
        assert again.stats().leased == 20_000


@given(
    borders=st.lists(st.integers(1, 60), unique=True).map(sorted),
    base=st.integers(0, 40),
    most=st.integers(1, 30),
    wanted=st.integers(0, 40),
)
def test_a_cut_takes_something_and_not_too_much_and_is_at_a_border_if_there_is_one(
    borders: list[int], base: int, most: int, wanted: int
) -> None:
    count = _cut(base, most, min(wanted, most), borders)
    assert 1 <= count <= most
    if any(base < border <= base + most for border in borders):
        assert base + count in borders


# --- what no frame and no record holds


def test_a_value_of_more_than_a_frame_cannot_be_allowed(place: Path) -> None:
    with pytest.raises(BadRequest, match="value_bytes"):
        open_journal(place / "journal", JournalSettings(value_bytes=VALUE_BYTES_MAX + 1))
    settings = JournalSettings(value_bytes=VALUE_BYTES_MAX)
    with open_journal(place / "journal", settings) as journal, pytest.raises(TooLarge):
        journal.engine.check_size(4_000_000_001)
