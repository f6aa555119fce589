"""Naming jobs on the command line, by id or by resource, and counting only those that are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.journals import Journals
from tests.cli.test_journal import pages, until  # noqa: F401

import headrace as hr
from headrace.journal import open_journal
from headrace.kernel.clock import ManualClock, SystemClock


def test_a_resource_that_is_a_number_is_done_by_its_name(pages: Journals) -> None:  # noqa: F811
    pages("put", "https://example.com/a")
    pages("put", "17")
    pages.json("next")
    pages.json("next")
    if not pages.over_fj:
        assert "error (lease_lost)" in pages.refused("done", "17"), "it is taken for an id"
    pages("done", "17", "--resource")
    assert "error (" in pages.refused("done", "17", "--resource")
    pages("done", "https://example.com/a")


def test_a_resource_that_is_a_number_is_given_back_by_its_name(pages: Journals) -> None:  # noqa: F811
    pages("put", "0017")
    lease = until(pages)
    pages("fail", "0017", "--resource", "--lease-until", lease, "--retry-in", "0s")
    assert pages.json("next")["resource"] == "0017"


@pytest.mark.parametrize("digits", [20, 5000])
def test_more_digits_than_an_id_has_are_a_resource(place: Path, digits: int) -> None:
    journals = Journals(place / "data")
    journals("put", "1" * digits)
    journals("next")
    journals("done", "1" * digits)


def test_what_is_over_is_neither_listed_nor_counted(place: Path) -> None:
    with hr.open(place / "data") as store:
        store.journal("pages").close()
    clock = ManualClock(SystemClock().now_us() - 3600_000_000)
    with open_journal(place / "data" / "journals" / "pages", clock=clock) as journal:
        journal.put("leased and over", ttl="1m")
        journal.next(lease="1s")
        journal.put("leased and over", ttl="1m")
        journal.put("over", ttl="1m")
        journal.put("there", ttl="1d")
        journal.set("over", 1, ttl="1m")
        journal.set("there", 1, ttl="1d")
    journals = Journals(place / "data")
    assert [row["resource"] for row in journals.rows("ls")] == ["there"]
    stats = journals.json("stats")
    assert (stats["pending"], stats["leased"], stats["values"]) == (1, 0, 1)
    assert stats["by_priority"] == {"128": 1}
    with open_journal(place / "data" / "journals" / "pages") as journal:  # as whoever works with it sees it
        assert [job.resource for job in journal.jobs()] == ["there"]
        assert [value.key for value in journal.range()] == ["there"]
