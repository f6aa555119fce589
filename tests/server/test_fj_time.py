"""Time that goes on between two requests of FJ: leases and lives end, whoever asks next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.journal import Journal, NoSuchKey, open_journal
from headrace.kernel.clock import ManualClock
from headrace.wire.fj import BUSY, DATA, PERSIST, RANGE, WORKED_ON, Function

from .fj_asked import Asking

START_US = 1_700_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US)


@pytest.fixture
def journal(place: Path, clock: ManualClock) -> Iterator[Journal]:
    with open_journal(place / "j", clock=clock) as journal:
        yield journal


@pytest.fixture
def ask(journal: Journal) -> Asking:
    return Asking(journal)


def test_a_job_is_not_busy_when_its_lease_is_over(journal: Journal, ask: Asking, clock: ManualClock) -> None:
    journal.put("r")
    journal.next(lease="1m")
    assert ask(Function.GET, b"r", DATA).flags & BUSY
    clock.advance(61)
    assert not ask(Function.GET, b"r", DATA).flags & BUSY


def test_a_job_whose_lease_is_over_is_deleted_without_proof(
    journal: Journal, ask: Asking, clock: ManualClock
) -> None:
    journal.put("r")
    journal.next(lease="1m")
    clock.advance(61)
    ask(Function.DELETE, b"r")
    assert not list(journal.jobs())


def test_a_job_whose_life_is_over_does_not_exist(journal: Journal, ask: Asking, clock: ManualClock) -> None:
    journal.put("r", ttl="1s")
    clock.advance(2)
    with pytest.raises(NoSuchKey):
        ask(Function.GET, b"r", DATA)
    journal.put("r", ttl="1s")
    clock.advance(2)
    with pytest.raises(NoSuchKey):
        ask(Function.DELETE, b"r")


def test_a_job_that_is_given_back_due_at_0_is_due_now_and_overtakes_nobody(
    journal: Journal, ask: Asking, clock: ManualClock
) -> None:
    journal.put("first")
    clock.advance(1)
    journal.put("second")
    clock.advance(1)
    job = journal.next()
    lease = job.lease_until_us
    ask(Function.SET, b"::0", WORKED_ON | RANGE | PERSIST, timeout=lease, count=0, upper=b"first")
    assert {job.resource: job.due_us for job in journal.jobs()}["first"] == clock.now_us()
    assert journal.next().resource == "second"
