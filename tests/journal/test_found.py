"""What these tests have found in journals, each kept so that it never comes back."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.journal import (
    BadRequest,
    Journal,
    JournalSettings,
    LeaseLost,
    Locked,
    MemoryFull,
    NoSuchKey,
    Nothing,
    OutOfRange,
    Type,
    open_journal,
)
from headrace.kernel.clock import ManualClock

START_US = 1_700_000_000_000_000
PATIENCE_S = 60
"""Never reached unless something hangs."""
Open = Callable[..., Journal]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US)


@pytest.fixture
def reopen(place: Path, clock: ManualClock) -> Any:
    """Opens the journal of this test; what was open is closed before, and at the end."""
    opened: list[Journal] = []

    def reopen(**settings: Any) -> Journal:
        for journal in opened:
            journal.close()
        chosen = JournalSettings(**settings) if settings else None
        opened.append(open_journal(place / "journal", chosen, clock=clock))
        return opened[-1]

    yield reopen
    for journal in opened:
        journal.close()


def keys(journal: Journal) -> list[str]:
    return [value.key for value in journal.range()]


# --- values that expired, and what replay makes of them


def test_a_key_of_an_expired_value_that_is_set_again_brings_no_other_key_back(reopen, clock):
    journal = reopen()
    journal.set("a", 1, ttl=1)
    journal.link("a", "b")
    clock.advance(2)
    journal.set("b", 2)
    assert keys(journal) == ["b"]
    assert keys(reopen()) == ["b"]


def test_a_value_does_not_inherit_the_lease_of_an_expired_one(reopen, clock):
    journal = reopen()
    journal.set("a", 1, ttl=1)
    journal.get("a", lease="1h")
    clock.advance(2)
    journal.set("a", 2)
    assert not reopen().probe("a").locked


def test_a_link_over_an_expired_value_can_be_replayed(reopen, clock):
    journal = reopen()
    journal.set("b", 1, ttl=1)
    clock.advance(2)
    journal.set("a", 2)
    journal.link("a", "b")
    assert keys(reopen()) == ["a", "b"]


# --- values that change between memory only and the disk


def test_a_value_that_is_to_persist_no_more_keeps_its_keys_and_its_lock(reopen):
    journal = reopen()
    journal.set("a", 1)
    journal.link("a", "b")
    journal.lock("a", "me")
    journal.set("a", 2, persist=False, owner="me")
    assert journal.get("b").value == 2
    with pytest.raises(Locked):
        journal.set("b", 3)
    assert keys(reopen()) == []


def test_a_value_that_is_to_persist_now_takes_all_its_keys_and_its_lease_with_it(reopen):
    journal = reopen()
    journal.set("a", 1, persist=False)
    journal.link("a", "b")
    journal.get("a", lease="1h")
    journal.set("a", 2)
    again = reopen()
    assert keys(again) == ["a", "b"]
    assert again.probe("b").locked


def test_a_value_may_be_set_to_expire_at_once_and_to_persist_no_more(reopen):
    journal = reopen()
    journal.set("a", 1)
    assert journal.set("a", 1, persist=False, ttl=0)
    assert journal.get("a") is None


# --- deletions


def test_an_older_deletion_does_not_lower_what_is_remembered(reopen):
    journal = reopen()
    journal.set("k", 1, timestamp_us=5)
    journal.delete("k", timestamp_us=30)
    with pytest.raises(NoSuchKey):
        journal.delete("k", timestamp_us=10)
    assert not journal.set("k", 1, timestamp_us=20)
    assert not reopen().set("k", 1, timestamp_us=20)


def test_the_deletion_of_a_value_in_memory_only_is_remembered_too(reopen):
    journal = reopen()
    journal.set("k", 1, timestamp_us=5, persist=False)
    journal.delete("k", timestamp_us=30)
    assert not journal.set("k", 1, timestamp_us=20)


def test_the_deletion_of_a_missing_key_is_on_the_disk_when_it_is_refused(reopen, place, clock):
    journal = reopen()
    with pytest.raises(NoSuchKey):
        journal.delete("k", timestamp_us=50)
    shutil.copytree(place / "journal", place / "killed")
    with open_journal(place / "killed", clock=clock) as killed:
        assert not killed.set("k", 1, timestamp_us=20)


# --- renaming


def test_a_renamed_value_keeps_its_lock_and_its_lease(reopen):
    journal = reopen()
    journal.set("a", 1)
    journal.get("a", lease="1h")
    journal.lock("a", "me")
    journal.rename("a", "b", owner="me")
    with pytest.raises(Locked):
        journal.set("b", 2)
    journal.unlock("b", "me")
    assert journal.probe("b").locked
    assert reopen().probe("b").locked


# --- jobs with a life of their own


def test_a_job_that_waits_beside_another_is_not_given_out_after_its_life(reopen, clock):
    journal = reopen()
    journal.put("r")
    first = journal.next(lease=10)
    journal.put("r", ttl=1)
    clock.advance(11)
    again = journal.next()
    assert again
    assert again.id == first.id


def test_a_job_that_waits_beside_another_and_is_over_does_not_take_its_place(reopen, clock):
    journal = reopen()
    journal.put("r")
    first = journal.next(lease=10)
    journal.put("r", ttl=1)
    clock.advance(5)
    assert [job.state for job in journal.jobs()] == ["leased"]
    first.fail(0)
    again = journal.next()
    assert again
    assert again.id == first.id


def test_a_job_whose_life_ends_while_it_is_worked_on_does_not_come_back(reopen, clock):
    journal = reopen()
    journal.put("r", ttl=5)
    assert journal.next(lease=10)
    clock.advance(11)
    assert journal.next() == Nothing(None)


def test_the_end_of_a_jobs_life_is_not_told_as_a_time_when_something_is_due(reopen):
    journal = reopen()
    journal.put("r", after=600, ttl=60)
    journal.put("s", after=700)
    assert journal.next().next_at_us in (START_US + 600_000_000, START_US + 700_000_000)


# --- leases that ended, whoever looks first


def test_a_lease_that_has_ended_is_lost_even_if_nobody_has_looked_since(reopen, clock):
    journal = reopen()
    journal.put("r")
    job = journal.next(lease=10)
    clock.advance(11)
    for act in (job.done, job.fail, lambda: job.extend(5)):
        with pytest.raises(LeaseLost):
            act()
    assert journal.done_batch([job.id]) == [job.id]


def test_a_job_put_again_after_its_lease_ended_is_the_same_job_and_its_attempts_count(reopen, clock):
    journal = reopen(max_attempts=2)
    id_ = journal.put("r")
    assert journal.next(lease=10)
    clock.advance(11)
    assert journal.put("r") == id_
    assert journal.next(lease=10).attempts == 2
    clock.advance(11)
    assert journal.put("r") != id_
    assert [(job.id == id_, job.state) for job in journal.jobs()] == [(False, "pending"), (True, "dead")]


# --- order


def test_a_job_that_moves_to_another_domain_has_left_the_first(reopen):
    journal = reopen()
    journal.put("x", domain="a", due_us=START_US - 5)
    journal.put("x", domain="b", due_us=START_US - 5)
    assert journal.next("a") == Nothing(None)
    assert journal.next("b")


def test_jobs_in_memory_only_are_first_in_first_out_too(reopen):
    journal = reopen()
    for resource in "xyz":
        journal.put(resource, persist=False, due_us=START_US - 5)
    assert [journal.next().resource for _ in range(3)] == ["x", "y", "z"]


def test_the_same_resource_may_come_several_times_in_a_batch(reopen):
    journal = reopen()
    journal.put_batch(["r2", "r1", "r2", "r2"])
    journal.put_batch(["later", "later"], after=1)
    assert [journal.next().resource for _ in range(2)] == ["r2", "r1"]


def test_ids_of_jobs_in_memory_only_are_not_used_again_after_opening(reopen, clock):
    first = reopen().put("r", persist=False)
    clock.advance(0.001)
    assert reopen().put("r", persist=False) != first


def test_a_job_taken_for_good_needs_no_word_when_it_is_done(reopen):
    journal = reopen()
    journal.put("x")
    with journal.next(delete=True) as job:
        assert job
    assert journal.next() == Nothing(None)


# --- what does not fit


def test_texts_that_are_not_utf8_pass_through_everything(reopen):
    journal = reopen()
    journal.put("http://\udcff/path")
    journal.put("x", domain="\udcff")
    journal.put("plain\udcfe", value="\udcfd")
    assert len(journal.next_batch(10)) == 3
    assert {job.resource for job in reopen().jobs()} == {"http://\udcff/path", "x", "plain\udcfe"}


def test_a_regular_expression_sees_characters_not_bytes(reopen):
    journal = reopen()
    journal.set("é", 1)
    assert [value.key for value in journal.match("^[é]$")] == ["é"]
    assert [value.key for value in journal.match("^.$")] == ["é"]


def test_a_sum_of_floats_that_overflows_is_refused(reopen):
    journal = reopen()
    journal.set("f", 1e308)
    with pytest.raises(OutOfRange):
        journal.add("f", 1e308)
    assert journal.get("f").value == 1e308


def test_the_largest_value_fits_whatever_was_written_before(reopen):
    journal = reopen(value_bytes=17 << 20)
    for key in "abcde":
        journal.set(key, bytes(17 << 20))
    journal.set("small", 1)
    journal.set("a", bytes(17 << 20))
    assert len(keys(journal)) == 6


def test_jobs_in_memory_only_count_against_their_limit(reopen):
    journal = reopen(volatile_bytes=5000)
    journal.put("x", value=bytes(3000), persist=False)
    with pytest.raises(MemoryFull):
        journal.put("y", value=bytes(3000), persist=False)
    journal.put("y", value=bytes(3000))
    journal.put("x", value=bytes(3001), persist=False)


def test_nobody_cannot_lock(reopen):
    journal = reopen()
    journal.set("k", 1)
    with pytest.raises(BadRequest):
        journal.lock("k", None)


# --- waiting and listening


def test_a_job_put_right_before_somebody_begins_to_wait_is_noticed(reopen, monkeypatch):
    journal = reopen()
    wait, found = journal.engine.wait, []

    def put_and_wait(*arguments: Any) -> None:
        journal.put("r")
        wait(*arguments)

    monkeypatch.setattr(journal.engine, "wait", put_and_wait)
    thread = threading.Thread(target=lambda: found.append(journal.next(wait="1h")))
    thread.start()
    thread.join(PATIENCE_S)
    assert found
    assert found[0].resource == "r"


def test_who_listens_is_told_of_an_expiry_without_another_operation(reopen, clock):
    journal = reopen()
    journal.set("a", 1, ttl=1)
    told: list[tuple[str, Type]] = []
    journal.listen("a", lambda *change: told.append(change))
    clock.advance(2)
    journal.engine._care()
    assert told == [("a", Type.VOID)]
