"""The log stays in proportion to what is alive, opening costs what is alive, and nothing alive is lost."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.journal import Job, JournalSettings, ledger, open_journal, replay, sweep
from headrace.journal.new_jobs import NewJob
from headrace.journal.reading import read_state
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import DiskFull

START_US = 1_700_000_000_000_000


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 100)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 60)


def settle_down(journal: Any) -> None:
    journal.engine._ledger.pour()
    journal.engine._care()


def all_of(journal: Any) -> object:
    jobs = sorted((job.id, job.state, job.until_us, job.attempts, job.value) for job in journal.jobs())
    values = [
        (each.key, each.value, each.expires_us, each.locked, sorted(each.keys)) for each in journal.range()
    ]
    return jobs, values


def test_the_log_never_holds_much_more_than_what_is_alive(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        for number in range(50):
            journal.put(f"lives/{number}", priority=200)
        for number in range(3000):
            journal.put(f"passes/{number}", priority=1)
            journal.next(delete=True)
            if number % 50 == 0:
                settle_down(journal)
                assert journal.stats().log_events <= 2 * 50 + 100 + 2 * 50 + 60
        settle_down(journal)
        assert journal.stats().pending == 50
    with open_journal(place / "j") as journal:
        assert journal.stats().pending == 50
        assert journal.stats().log_events <= 300


def test_what_a_sweep_says_again_stands_where_it_stood(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        for number in range(50):
            journal.put(f"lives/{number}", domain="d", priority=200)
        rows = {resource: (row, row.place) for resource, row in journal.engine.state.jobs.pending.items()}
        for number in range(300):
            journal.put(f"passes/{number}", domain="d", priority=1)
            journal.next("d", delete=True)
        settle_down(journal)
        for resource, (row, said_at) in rows.items():
            assert journal.engine.state.jobs.pending[resource] is row
            assert row.place > said_at
        table = journal.next_batch(50, domain="d")
        assert table["resource"].to_pylist() == [f"lives/{number}" for number in range(50)]
    with open_journal(place / "j") as journal:
        assert journal.stats().leased == 50


def test_opening_reads_what_is_alive_and_not_what_has_happened(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_journal(place / "j", JournalSettings(durability="os", history="forever")) as journal:
        journal.put("lives")
        for number in range(2000):
            journal.set("k", number)
            if number % 100 == 0:
                settle_down(journal)
        settle_down(journal)
        swept = journal.engine.swept
        assert swept > 1700
    starts = []
    real = replay.replay

    def watched(log: Any, start: int, state: Any) -> Any:
        starts.append(start)
        return real(log, start, state)

    monkeypatch.setattr("headrace.journal.engine.replay", watched)
    with open_journal(place / "j") as journal:
        assert [job.resource for job in journal.jobs()] == ["lives"]
    assert starts == [swept]


def test_jobs_in_every_state_and_values_of_every_kind_outlive_the_log(place: Path) -> None:
    clock = ManualClock(START_US)
    with open_journal(place / "j", JournalSettings(durability="os", max_attempts=1), clock=clock) as journal:
        journal.put("dead")
        journal.next().fail()
        journal.put("leased", value=b"payload")
        leased = journal.next(lease="9h")
        journal.put("leased", value=b"beside")
        journal.put("later", after="3h", ttl="5h")
        journal.put("dead", after="1h", priority=7)
        journal.set("a", "text", ttl="2h")
        journal.link("a", "b")
        journal.get("b", lease="1h")
        journal.set("gone", 1, timestamp_us=START_US + 50)
        journal.delete("gone", timestamp_us=START_US + 60)
        before = all_of(journal)
        for number in range(1000):
            journal.set("noise", number)
            if number % 90 == 0:
                settle_down(journal)
        journal.delete("noise", now=True)
        settle_down(journal)
        assert journal.engine.swept > 700
        assert all_of(journal) == before
    with open_journal(place / "j", clock=clock) as journal:
        assert all_of(journal) == before
        assert not journal.set("gone", 1, timestamp_us=START_US + 55)
        journal.done(leased)
        assert journal.next().value == b"beside"


def test_a_batch_that_is_repeated_is_known_as_long_as_the_journal_lives(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        assert len(journal.put_batch(["r1", "r2"], once=("spark", 7))) == 2
        assert journal.put_batch(["r1", "r2"], once=("spark", 7)) == []
        assert journal.put_batch(["r3"], once=("spark", 6)) == []
        assert len(journal.put_batch(["r3"], once=("other", 6))) == 1
        for number in range(1000):
            journal.set("noise", number)
            if number % 90 == 0:
                settle_down(journal)
        journal.delete("noise", now=True)
        assert [each.key for each in journal.range()] == []
        assert journal.stats().values == 0
    with open_journal(place / "j") as journal:
        assert journal.put_batch(["r9"], once=("spark", 7)) == []
        assert len(journal.put_batch(["r9"], once=("spark", 8))) == 1
        assert list(journal.match(".")) == []


def test_who_reads_beside_the_writer_sees_a_state_that_there_was(place: Path) -> None:
    """Two values that are always changed one after the other, while the log is swept all the time."""
    chance = Random(7)
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        journal.set("first", 0)
        journal.set("second", 0)
        taken: list[Job] = []
        for number in range(1, 400):
            journal.set("first", number)
            journal.set("second", number)
            journal.put(f"r{number % 9}")
            job = journal.next()
            if isinstance(job, Job):
                taken.append(job)
            if taken and chance.random() < 0.6:
                taken.pop().done()
            if number % 20 == 0:
                settle_down(journal)
            if number % 13 == 0:
                state = read_state(place / "j")
                here = journal.engine.state
                assert {row.id: row.where for row in state.jobs.rows()} == {
                    row.id: row.where for row in here.jobs.rows()
                }
                values = {key: bytes(row.value or b"") for key, row in state.values.rows()}
                assert values[b"first"] == values[b"second"] == number.to_bytes(8, "little")


@pytest.mark.parametrize("again", ["set", "add"])
def test_a_value_that_is_changed_keeps_its_other_keys_and_its_lease_wherever_the_sweep_is(
    place: Path, again: str
) -> None:
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        journal.set("a", 1)
        journal.link("a", "b")
        journal.get("b", lease="9h")
        for number in range(80):
            journal.set("noise", number)
        if again == "set":
            journal.set("a", 2)
        else:
            journal.add("b", 1)
        for number in range(60):
            journal.set("noise", number)
        settle_down(journal)
        assert 3 < journal.engine.swept < 83  # between the two
        before = all_of(journal)
    with open_journal(place / "j") as journal:
        assert all_of(journal) == before
        found = journal.get("b")
        assert found is not None
        assert (found.value, found.locked) == (2, True)


# --- when something comes in between


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens in the background."""
    monkeypatch.setattr(ledger.Ledger, "start", lambda self: None)


def fails(*args: object, **named: object) -> None:
    raise DiskFull("no room")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("verb", ["pour", "admit"])
def test_what_a_full_disk_kept_from_the_log_is_there_before_its_first_saying_goes(
    place: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    with open_journal(place / "j") as journal:
        journal.put("job")
        journal.set("value", "v")
        journal.link("value", "second key")
        for number in range(300):
            journal.set("k", number)
        before = all_of(journal)
        books = journal.engine._ledger
        books.pour()
        for _ in range(3):
            with monkeypatch.context() as full, suppress(DiskFull):
                full.setattr(books, verb, fails)
                journal.engine._care()
        shutil.copytree(place / "j", place / "killed")
        settle_down(journal)
        assert journal.engine.swept > 100
    for name in ("killed", "j"):
        with open_journal(place / name) as journal:
            assert all_of(journal) == before


@pytest.mark.usefixtures("quiet")
def test_a_value_and_its_keys_are_said_anew_together_or_not_at_all(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_journal(place / "j") as journal:
        journal.set("value", "v")
        for number in range(20):
            journal.link("value", f"key {number}")
        for number in range(300):
            journal.set("k", number)
        before = all_of(journal)
        books = journal.engine._ledger
        books.pour()
        for allowed in range(20):
            with monkeypatch.context() as full, suppress(DiskFull):
                admissions = iter([books.admit] * allowed)
                full.setattr(books, "admit", lambda size: next(admissions, fails)(size))  # noqa: B023
                journal.engine._care()
        settle_down(journal)
        assert journal.engine.swept > 100
        assert all_of(journal) == before
    with open_journal(place / "j") as journal:
        assert all_of(journal) == before


@pytest.mark.usefixtures("quiet")
def test_a_job_is_not_due_sooner_because_the_clock_of_who_asked_for_it_is_ahead(place: Path) -> None:
    clock, hour = ManualClock(START_US), 3_600_000_000
    with open_journal(place / "j", clock=clock) as journal:
        engine = journal.engine
        job = NewJob(b"a", "d", 1, START_US + hour, 0, b"", START_US + 2 * hour)
        engine.do(lambda now: engine.jobs.put(now, job))
        for number in range(300):
            journal.set("k", number)
        settle_down(journal)
        assert engine.swept > 0
        assert not journal.next("d")
    with open_journal(place / "j", clock=clock) as journal:
        assert not journal.next("d")
        clock.advance(3600)
        assert journal.next("d")


@pytest.mark.usefixtures("quiet")
def test_a_job_that_is_known_before_the_one_it_waits_for_is_taken_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep is between the two: the leased one was said anew, behind the one that waits."""
    clock = ManualClock(START_US)
    with open_journal(place / "j", clock=clock) as journal:
        journal.put("a", domain="d", priority=1)
        leased = journal.next("d")
        for number in range(58):
            journal.set("k", number)
        journal.put_batch([f"{n}" for n in range(6)], domain="d", priority=1)
        journal.put("a", domain="d", priority=1, ttl="1h")
        for number in range(300):
            journal.set("k", number)
        journal.engine._ledger.pour()
        steps = iter([True, False])
        monkeypatch.setattr(journal.engine._sweep, "_wanted", lambda state: next(steps))
        journal.engine._care()
        assert journal.engine.swept == 60
    with open_journal(place / "j", clock=clock) as journal:
        journal.put_batch([f"other {n}" for n in range(6)], domain="other")
        assert isinstance(leased, Job)
        journal.done(leased.id)
        taken = journal.next_batch(100, "d", lease="1m")
        assert sorted(taken["resource"].to_pylist()) == [*map(str, range(6)), "a"]
        clock.advance(3601)
        assert journal.stats().by_domain == {"d": 6, "other": 6}
