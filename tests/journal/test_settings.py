"""Settings: stored with the journal, replaced by whoever opens it with others, and what each does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.journal import JournalSettings, Nothing, open_journal, sweep
from headrace.journal.reading import read_events
from headrace.kernel.backoff import Backoff
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import BadSettings, LogFull, Refused
from headrace.log.settings import Containers

START_US = 1_700_000_000_000_000
MANY = 400


def test_settings_are_stored_and_found_again(place: Path) -> None:
    chosen = JournalSettings(
        durability="interval",
        sync_interval_ms=20,
        lease="2h",
        max_attempts=3,
        retry=Backoff(1.0, 3.0, 60.0),
        fair=True,
        keep_highest_priority=True,
        history="7d",
        memory_bytes=1000,
        volatile_bytes=2000,
        value_bytes=3000,
        keep_deleted="1h",
        containers=Containers(bytes=1 << 20, initial=3, limit=9),
    )
    with open_journal(place / "journal", chosen) as journal:
        assert journal.settings == chosen
    with open_journal(place / "journal") as journal:
        assert journal.settings == chosen


def test_other_settings_replace_what_was_stored_and_lose_nothing(place: Path) -> None:
    with open_journal(place / "journal") as journal:
        journal.put("r")
    with open_journal(place / "journal", JournalSettings(max_attempts=1, durability="os")) as journal:
        assert journal.settings.max_attempts == 1
        job = journal.next()
        assert job
        job.fail()
        assert journal.stats().dead == 1
    with open_journal(place / "journal") as journal:
        assert journal.settings == JournalSettings(max_attempts=1, durability="os")


def test_one_store_has_one_object_for_a_journal_and_refuses_other_settings(place: Path) -> None:
    with hr.open(place / "data") as store:
        first = store.journal("pages")
        assert store.journal("pages") is first
        with pytest.raises(BadSettings):
            store.journal("pages", JournalSettings(max_attempts=1))
        first.close()
        assert store.journal("pages", JournalSettings(max_attempts=1)).settings.max_attempts == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"durability": "sometimes"},
        {"max_attempts": 0},
        {"max_attempts": "x"},
        {"sync_interval_ms": 0},
        {"memory_bytes": 0},
        {"memory_bytes": "x"},
        {"volatile_bytes": -1},
        {"value_bytes": 0},
        {"value_bytes": 1.5},
        {"lease": 0},
        {"lease": "long"},
        {"history": "long"},
        {"keep_deleted": "long"},
        {"retry": Backoff(-1.0)},
        {"retry": Backoff(1.0, float("nan"))},
        {"retry": Backoff(1.0, 2.0, float("inf"))},
    ],
    ids=str,
)
def test_wrong_settings_are_refused_before_anything_is_made(place: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        open_journal(place / "journal", JournalSettings(**wrong))
    assert not list(place.rglob("meta.json"))
    open_journal(place / "journal").close()


@pytest.mark.parametrize("factor", [2.0, 1e300, 0.0])
def test_the_pause_after_any_number_of_failures_is_a_time(factor: float) -> None:
    for attempts in (0, 1, 2, 63, 64, 65, 10**9):
        assert 0 <= Backoff(10.0, factor, 3600.0).pause_us(attempts) <= 3_600_000_000


def test_the_lease_of_the_settings_holds_when_next_does_not_say(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(lease="90s"), clock=ManualClock(START_US)) as journal:
        journal.put("r")
        assert journal.next()
        assert journal.next() == Nothing(START_US + 90_000_000)


def test_work_that_fails_pauses_longer_each_time(place: Path) -> None:
    clock = ManualClock(START_US)
    settings = JournalSettings(retry=Backoff(first_s=10, factor=3, longest_s=50))
    with open_journal(place / "j", settings, clock=clock) as journal:
        journal.put("r")
        pauses = []
        for _ in range(4):
            job = journal.next()
            assert job
            job.fail()
            at = journal.next().next_at_us
            pauses.append((at - clock.now_us()) // 1_000_000)
            clock.advance(50)
        assert pauses == [10, 30, 50, 50]


def test_a_priority_can_only_rise_if_the_settings_say_so(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(keep_highest_priority=True)) as journal:
        journal.put("r", priority=5)
        journal.put("r", priority=9)
        assert [job.priority for job in journal.jobs()] == [5]
        journal.put("r", priority=2)
        assert [job.priority for job in journal.jobs()] == [2]


def test_domains_are_served_in_turn_if_the_settings_say_so(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(fair=True)) as journal:
        journal.put_batch([f"https://a.org/{n}" for n in range(3)], priority=1)
        journal.put_batch([f"https://b.org/{n}" for n in range(3)], priority=9)
        assert [journal.next().domain for _ in range(4)] == ["a.org", "b.org", "a.org", "b.org"]
        assert journal.next(fair=False).domain == "a.org"


def test_a_deletion_is_forgotten_when_its_time_is_over(place: Path) -> None:
    clock = ManualClock(START_US)
    with open_journal(place / "j", JournalSettings(keep_deleted="1h"), clock=clock) as journal:
        journal.set("k", 1, timestamp_us=10)
        journal.delete("k", timestamp_us=30)
        clock.advance(3500)
        journal.engine._care()
        assert not journal.set("k", 1, timestamp_us=20)
        clock.advance(200)
        journal.engine._care()
        assert journal.set("k", 1, timestamp_us=20)


# --- the log


@pytest.fixture
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 50)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 50)


def change(journal: Any, clock: ManualClock, rounds: int = 8) -> None:
    """Much that becomes history at once, and one job that lives."""
    journal.put("lives")
    for number in range(rounds):
        for other in range(MANY // rounds):
            journal.set("k", number * 1000 + other)
        clock.advance(60)
        journal.engine._ledger.pour()
        journal.engine._care()


@pytest.mark.usefixtures("_eager")
@pytest.mark.parametrize(
    ("history", "least", "most"), [(None, 0, 160), ("2m", 60, 330), ("forever", MANY, 9999)]
)
def test_history_says_how_long_events_stay(place: Path, history: Any, least: int, most: int) -> None:
    clock = ManualClock(START_US)
    settings = JournalSettings(durability="os", history=history)
    with open_journal(place / "j", settings, clock=clock) as journal:
        change(journal, clock)
        journal.engine.log.roll()
        journal.set("k", 1)
        journal.engine._ledger.pour()
        journal.engine._care()
        kept = sum(batch.num_rows for _index, batch in read_events(place / "j"))
        live_part = journal.stats().log_events
    assert live_part < 200
    if history is not None:
        assert least <= kept
    if history == "forever":
        assert kept > MANY
    with open_journal(place / "j", clock=clock) as journal:
        assert [job.resource for job in journal.jobs()] == ["lives"]
        assert journal.get("k").value == 1


@pytest.mark.usefixtures("_eager")
def test_a_journal_in_containers_uses_them_again_and_again(place: Path) -> None:
    clock = ManualClock(START_US)
    settings = JournalSettings(durability="os", containers=Containers(bytes=512 << 10, initial=2, limit=6))
    with open_journal(place / "j", settings, clock=clock) as journal:
        journal.put("lives", value=b"x" * 1000)
        for number in range(400):
            journal.set("k", bytes([number % 250]) * 30_000)
            if number % 10 == 9:
                journal.engine._ledger.pour()
                journal.engine._care()
        assert (
            sum(file.stat().st_size for file in (place / "j" / "log").iterdir() if file.is_file()) <= 6 << 20
        )
    with open_journal(place / "j", clock=clock) as journal:
        assert [job.value for job in journal.jobs()] == [b"x" * 1000]
        assert journal.get("k").value == bytes([149]) * 30_000


def test_a_journal_whose_containers_are_full_says_so_and_goes_on_when_some_is_deleted(place: Path) -> None:
    settings = JournalSettings(durability="os", containers=Containers(bytes=512 << 10, initial=2, limit=4))
    kept = 0
    with open_journal(place / "j", settings) as journal:
        with pytest.raises(LogFull):
            for number in range(200):
                journal.set(f"k{number}", bytes(60_000))
                kept = number + 1
                if number % 5 == 4:
                    journal.engine._ledger.pour()
        assert 10 < kept < 200
        shutil.copytree(place / "j", place / "killed")
        for number in range(kept):
            journal.delete(f"k{number}", now=True)
        journal.engine._care()  # as the background does
        journal.engine._ledger.pour()
        journal.set("room", bytes(60_000))
    with open_journal(place / "j") as journal:
        assert [each.key for each in journal.range()] == ["room"]
    more = JournalSettings(durability="os", containers=Containers(bytes=512 << 10, initial=2, limit=8))
    with open_journal(place / "killed", more) as journal:
        assert len(list(journal.range())) == kept


def test_that_a_key_was_deleted_is_remembered_for_so_long(place: Path) -> None:
    """A request of before, which comes late, does not bring the value back; later on nobody knows."""
    clock = ManualClock(START_US)
    with open_journal(place / "journal", JournalSettings(keep_deleted="1h"), clock=clock) as journal:
        journal.set("k", 1)
        clock.advance(1.0)
        journal.delete("k")
        for minutes, forgotten in ((59, False), (2, True)):
            clock.advance(60.0 * minutes)
            journal.engine._care()  # as the background does
            assert journal.set("k", 2, timestamp_us=START_US + 1) is forgotten
        assert [value.value for value in journal.range()] == [2]
