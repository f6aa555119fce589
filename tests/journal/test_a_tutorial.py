"""Journals, from the beginning. Read this first."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.journal import KeyTaken, LeaseLost, Nothing, open_journal
from headrace.kernel.clock import ManualClock


def test_a_job_is_put_taken_and_done(place: Path) -> None:
    with hr.open(place / "data") as store:
        pages = store.journal("pages")
        pages.put("https://example.com/a", priority=10, value=b"thumbnail")
        job = pages.next("example.com", lease="2h")
        assert job
        assert (job.resource, job.value, job.attempts) == ("https://example.com/a", b"thumbnail", 1)
        job.done()
        assert pages.next() == Nothing(None)


def test_a_resource_has_one_pending_job_however_often_it_is_put(place: Path) -> None:
    with open_journal(place / "pages") as pages:
        first = pages.put("https://example.com/a", value=b"once")
        again = pages.put("https://example.com/a", value=b"twice")
        assert first == again
        job = pages.next()
        assert job
        assert job.value == b"twice"
        assert not pages.next()


def test_a_job_put_while_its_resource_is_worked_on_waits_beside_it(place: Path) -> None:
    with open_journal(place / "pages") as pages:
        pages.put("https://example.com/a", value=1)
        first = pages.next()
        assert first
        pages.put("https://example.com/a", value=2)
        assert not pages.next()
        first.done()
        second = pages.next()
        assert second
        assert second.value == 2


def test_priority_first_then_due_time_and_jobs_of_the_future_wait(place: Path) -> None:
    clock = ManualClock(1_000_000_000)
    with open_journal(place / "pages", clock=clock) as pages:
        pages.put("https://a.org/later", priority=1, after="10m")
        pages.put("https://a.org/second", priority=2)
        clock.advance(1)
        pages.put("https://a.org/third", priority=2)
        pages.put("https://a.org/first", priority=1)
        taken = [job.resource[-5:] for job in iter(pages.next, Nothing(1_600_000_000)) if job]
        assert taken == ["first", "econd", "third"]
        clock.advance(600)
        job = pages.next("a.org")
        assert job
        assert job.resource == "https://a.org/later"


def test_a_lease_that_ends_gives_the_job_to_somebody_else(place: Path) -> None:
    clock = ManualClock(1_000_000_000)
    with open_journal(place / "pages", clock=clock) as pages:
        pages.put("https://example.com/a")
        slow = pages.next(lease="1m")
        assert slow
        assert pages.next() == Nothing(slow.lease_until_us)
        clock.advance(61)
        quick = pages.next()
        assert quick
        assert (quick.id, quick.attempts) == (slow.id, 2)
        with pytest.raises(LeaseLost):
            slow.done()
        quick.done()


def test_work_that_fails_comes_back_and_after_too_often_is_put_aside(place: Path) -> None:
    clock = ManualClock(1_000_000_000)
    with open_journal(place / "pages", hr.JournalSettings(max_attempts=2), clock=clock) as pages:
        pages.put("https://example.com/a")
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), pages.next():
                raise ZeroDivisionError
            clock.advance(3600)
        assert not pages.next()
        assert [job.state for job in pages.jobs()] == ["dead"]
        assert pages.redrive() == 1
        with pages.next() as job:
            assert job
            assert job.attempts == 1
        assert list(pages.jobs()) == []


def test_many_jobs_are_leased_as_one_table(place: Path) -> None:
    with open_journal(place / "pages") as pages:
        pages.put_batch([f"https://example.com/{n}" for n in range(100)])
        table = pages.next_batch(60, lease="5m")
        assert table["resource"].to_pylist()[:2] == ["https://example.com/0", "https://example.com/1"]
        assert pages.done_batch(table["id"]) == []
        assert len(pages.next_batch(100)) == 40


def test_values_have_keys_types_and_a_life(place: Path) -> None:
    clock = ManualClock(1_000_000_000)
    with open_journal(place / "pages", clock=clock) as kv:
        kv.set("visits", 41)
        assert kv.add("visits", 1) == 42
        kv.set("open", False)
        assert kv.flip("open") is True
        kv.set("session", "secret", ttl="30m")
        with pytest.raises(KeyTaken):
            kv.set("session", "other", overwrite=False)
        clock.advance(29 * 60)
        found = kv.get("session", touch=True)
        assert found
        assert found.value == "secret"
        clock.advance(29 * 60)
        assert kv.probe("session") is not None
        clock.advance(2 * 60)
        assert kv.get("session") is None
        kv.link("visits", "counter")
        kv.rename("visits", "hits")
        assert [(v.key, v.value) for v in kv.range("a", "z")] == [
            ("counter", 42),
            ("hits", 42),
            ("open", True),
        ]
        assert [v.key for v in kv.match("^(hi|op)")] == ["hits", "open"]


def test_of_several_writers_the_one_with_the_largest_timestamp_wins(place: Path) -> None:
    with open_journal(place / "pages") as kv:
        assert kv.set("k", "new", timestamp_us=20)
        assert not kv.set("k", "old", timestamp_us=10)
        assert kv.delete("k", timestamp_us=30)
        assert not kv.set("k", "late", timestamp_us=25)
        assert kv.get("k") is None


def test_everything_is_there_after_opening_again(place: Path) -> None:
    with hr.open(place / "data") as store:
        pages = store.journal("pages")
        pages.put("https://example.com/a", value=b"x")
        pages.put("https://example.com/b")
        taken = pages.next(lease="1h")
        assert taken
        pages.set("kept", 1)
        pages.set("lost", 1, persist=False)
    with hr.open(place / "data") as store:
        pages = store.journal("pages")
        assert sorted((job.resource[-1], job.state) for job in pages.jobs()) == [
            ("a", "leased"),
            ("b", "pending"),
        ]
        assert pages.get("kept") is not None
        assert pages.get("lost") is None
