"""Clocks that go back, or are not the same everywhere, and writes that come late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.journal import Journal, open_journal
from headrace.kernel.clock import ManualClock

START_US = 1_700_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US)


@pytest.fixture
def journal(place: Path, clock: ManualClock) -> Iterator[Journal]:
    with open_journal(place / "journal", clock=clock) as journal:
        yield journal


def test_a_job_that_is_put_again_after_the_clock_went_back_is_changed(journal, clock):
    journal.put("a", value="first")
    journal.put("b", value="first")
    clock.advance(-60)
    journal.put("a", value="second", priority=1)
    journal.put_batch(["b"], values=["second"])
    clock.advance(120)
    assert [journal.next().value for _ in range(2)] == ["second", "second"]


def test_a_value_that_is_set_or_deleted_after_the_clock_went_back_is(journal, clock):
    journal.set("k", "first")
    journal.set("gone", "first")
    clock.advance(-60)
    assert journal.set("k", "second")
    assert journal.delete("gone")
    assert journal.set("gone", "again")
    assert journal.get("k").value == "second"
    assert journal.get("k").timestamp_us == START_US


def test_a_write_that_says_that_it_is_older_changes_nothing(journal, clock):
    journal.set("k", "first")
    assert not journal.set("k", "late", timestamp_us=START_US - 1)
    assert not journal.delete("k", timestamp_us=START_US - 1)
    assert journal.get("k").value == "first"
