"""Jobs that are given back: to another place, or because nobody got them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.fj_asked import Asking

from headrace.journal import Journal, JournalSettings, LeaseLost, open_journal
from headrace.server.http_jobs import _give_back
from headrace.wire.fj import PERSIST, RANGE, WORKED_ON, Function


def _told(journal: Journal) -> list[tuple[str, str, int, int]]:
    return [(job.state, job.domain, job.priority, job.attempts) for job in journal.jobs()]


def test_a_job_that_nobody_got_has_not_failed_and_keeps_its_place(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(max_attempts=1)) as journal:
        journal.put("r", domain="d", priority=7, due_us=1000)
        job = journal.next()
        _give_back(journal, job)
        assert _told(journal) == [("pending", "d", 7, 0)]
        assert [job.due_us for job in journal.jobs()] == [1000]
        _give_back(journal, job)  # its lease is over by then: nothing to do
    with open_journal(place / "j") as journal:
        assert _told(journal) == [("pending", "d", 7, 0)]
        journal.fail(journal.next())
        assert _told(journal) == [("dead", "d", 7, 1)]


def test_a_job_that_nobody_got_makes_way_for_a_newer_one(place: Path) -> None:
    with open_journal(place / "j") as journal:
        journal.put("r")
        job = journal.next()
        newer = journal.put("r")
        _give_back(journal, job)
        assert [job.id for job in journal.jobs()] == [newer]
        with pytest.raises(LeaseLost):
            journal.done(job)


def test_a_job_is_given_back_to_the_domain_of_the_place(place: Path) -> None:
    with open_journal(place / "j") as journal:
        ask = Asking(journal)
        journal.put("r", domain="old", priority=7)
        job = journal.next("old")
        said = {"timeout": job.lease_until_us, "count": 0, "upper": b"r"}
        ask(Function.SET, b"new:5:0", WORKED_ON | RANGE | PERSIST, **said)
        assert _told(journal) == [("pending", "new", 5, 1)]
        assert not journal.next("old")
        job = journal.next("new")
        said["timeout"] = job.lease_until_us
        ask(Function.SET, b"::0", WORKED_ON | RANGE | PERSIST, **said)
    with open_journal(place / "j") as journal:
        assert _told(journal) == [("pending", "new", 5, 2)]
        assert journal.next("new").resource == "r"
