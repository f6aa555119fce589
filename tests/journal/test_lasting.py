"""Jobs that survive a restart beside jobs that do not; and dead ones, of which a resource has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.journal import Journal, JournalSettings, open_journal
from headrace.kernel.clock import ManualClock

START_US = 1_700_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US)


@pytest.fixture
def reopen(place: Path, clock: ManualClock) -> Iterator[Callable[..., Journal]]:
    opened: list[Journal] = []

    def reopen(**settings: Any) -> Journal:
        for journal in opened:
            journal.close()
        clock.advance(0.001)  # ids of jobs in memory only are made of the time
        chosen = JournalSettings(**settings) if settings else None
        opened.append(open_journal(place / "journal", chosen, clock=clock))
        return opened[-1]

    yield reopen
    for journal in opened:
        journal.close()


def said(journal: Journal) -> list[tuple[str, Any, str]]:
    return [(job.resource, job.value, job.state) for job in journal.jobs()]


def test_a_job_in_memory_only_that_takes_the_place_of_a_failed_one_lasts_as_that_did(reopen):
    journal = reopen()
    journal.put("r", value="old")
    job = journal.next()
    journal.put("r", value="new", persist=False, priority=7)
    job.fail(retry_in=0)
    assert said(journal) == [("r", "new", "pending")]
    again = reopen()
    assert said(again) == [("r", "new", "pending")]
    assert again.next().priority == 7


def test_so_it_is_when_the_lease_just_ends(reopen, clock):
    journal = reopen()
    journal.put("r", value="old")
    journal.next(lease="1m")
    journal.put("r", value="new", persist=False)
    clock.advance(61)
    assert said(journal) == [("r", "new", "pending")]
    assert said(reopen()) == [("r", "new", "pending")]


def test_a_job_in_memory_only_beside_a_dead_one_lasts_once_that_is_redriven(reopen):
    journal = reopen(max_attempts=1)
    for resource in ("r", "s"):
        journal.put(resource, value="old")
        journal.next().fail()
    for resource in ("r", "s"):
        journal.put(resource, value="new", persist=False)
    dead = {job.resource: job.id for job in journal.jobs() if job.state == "dead"}
    assert journal.redrive(["r"]) == 0
    assert journal.redrive_as([(dead["s"], "s", "repaired", 1)]) == 0
    wanted = [("r", "new", "pending"), ("s", "new", "pending")]
    assert sorted(said(journal)) == wanted
    assert sorted(said(reopen())) == wanted


def test_a_job_in_memory_only_whose_life_is_over_takes_no_place(reopen, clock):
    journal = reopen()
    journal.put("r", value="old")
    job = journal.next()
    journal.put("r", value="new", persist=False, ttl=1)
    clock.advance(2)
    job.fail(retry_in=0)
    assert said(reopen()) == [("r", "old", "pending")]


def test_a_dead_job_that_a_later_one_replaced_does_not_come_back(reopen):
    journal = reopen(max_attempts=1)
    for value in ("old", "new"):
        journal.put("r", value=value)
        journal.next().fail()
    assert said(journal) == [("r", "new", "dead")]
    assert journal.redrive() == 1
    journal.next().done()
    assert said(journal) == []
    assert said(reopen()) == []


def test_a_dead_job_that_lasts_is_not_replaced_by_one_that_does_not(reopen):
    journal = reopen(max_attempts=1)
    journal.put("r", value="old")
    journal.next().fail()
    journal.put("r", value="hint", persist=False)
    journal.next().fail()
    assert said(journal) == [("r", "old", "dead")]
    assert said(reopen()) == [("r", "old", "dead")]
