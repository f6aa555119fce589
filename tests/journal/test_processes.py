"""One process has a journal at a time; others are told, and get it when it is free."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr
from headrace.journal import JournalTaken, open_journal

CHILD = """
import sys
import headrace as hr
with hr.open(sys.argv[1]) as store:
    try:
        journal = store.journal("pages")
    except hr.HeadraceError as error:
        print("refused", error.code, flush=True)
    else:
        journal.put("from the child")
        print("opened", flush=True)
        sys.stdin.readline()
"""


def child(place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_second_process_is_refused_and_the_first_goes_on(place: Path) -> None:
    with hr.open(place / "data") as store:
        pages = store.journal("pages")
        with child(place / "data") as second:
            out, _ = second.communicate()
        assert out.split() == ["refused", "journal_taken"]
        pages.put("still here")
        assert pages.stats().pending == 1


def test_a_process_that_has_it_keeps_it_until_it_ends_even_by_force(place: Path) -> None:
    with child(place / "data") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "opened\n"
        with hr.open(place / "data") as store:
            with pytest.raises(JournalTaken, match="journal serve"):
                store.journal("pages")
            first.kill()
            first.wait()
            assert [job.resource for job in store.journal("pages").jobs()] == ["from the child"]


def test_in_one_process_it_cannot_be_opened_twice_either(place: Path) -> None:
    with open_journal(place / "j") as journal:
        with pytest.raises(JournalTaken):
            open_journal(place / "j")
        journal.put("r")
    with open_journal(place / "j") as journal:
        assert journal.stats().pending == 1
