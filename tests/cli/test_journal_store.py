"""`headrace journal` on a store: what servers are not asked for, and journals that others have open."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.cli.journals import Journals
from tests.cli.running import headrace
from tests.cli.test_every_command import COMMANDS

import headrace as hr
from headrace.cli import journal_verbs


@pytest.fixture
def pages(place: Path) -> Journals:
    return Journals(place / "data")


def test_the_commands_of_the_noun_journal_are_all_there() -> None:
    assert {words[1] for words in COMMANDS if words[0] == "journal"} == {
        *("ls", "create", "put", "next", "done", "fail", "set", "get", "delete", "range"),
        *("watch", "stats", "redrive", "serve", "follow", "unfollow", "drop", "forward"),
    }


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] == "journal"], ids=" ".join)
def test_each_has_an_example(words: tuple[str, ...]) -> None:
    assert f"Example: headrace {' '.join(words)}" in " ".join(COMMANDS[words].help.split())


def test_putting_makes_the_journal_and_says_so(pages: Journals) -> None:
    outcome = pages("put", "a")
    assert outcome.text == "put job 0: a\n"
    assert outcome.err == f"made the journal 'pages' in {pages.store}\n"
    assert pages("put", "a").err == ""


@pytest.mark.parametrize(
    "words",
    [
        ("next",),
        ("done", "1"),
        ("fail", "1"),
        ("get", "k"),
        ("delete", "k"),
        ("range",),
        ("watch",),
        ("stats",),
        ("redrive",),
        ("create", "--change"),
    ],
)
def test_what_only_looks_makes_nothing(pages: Journals, words: tuple[str, ...]) -> None:
    Journals(pages.store)("put", "a")
    other = headrace("journal", words[0], "other", *words[1:], "--store", pages.store)
    assert other.code == 1
    assert "error (not_found): there is no journal 'other'" in other.err
    nowhere = headrace("journal", words[0], "other", *words[1:], "--store", pages.store / "nowhere")
    assert nowhere.code == 1
    assert (pages.store / "journals" / "other").exists() is False
    assert "error (not_found)" in nowhere.err


def test_a_store_without_journals_says_how_to_make_one(pages: Journals) -> None:
    with hr.open(pages.store):
        pass
    outcome = headrace("journal", "ls", "--store", pages.store)
    assert (outcome.code, outcome.out) == (0, b"")
    assert "`headrace journal create`" in outcome.err


def test_journals_and_jobs_are_listed(pages: Journals) -> None:
    for resource, priority in (("b", "2"), ("a", "1"), ("c", "3")):
        pages("put", resource, "--priority", priority, "--value", f"of {resource}")
    pages("next", "--lease", "1h")
    pages("set", "k", "v")
    (row,) = headrace("journal", "ls", "--json", "--store", pages.store).json["journals"]
    assert {key: row[key] for key in ("name", "pending", "leased", "dead", "values")} == {
        "name": "pages",
        "pending": 2,
        "leased": 1,
        "dead": 0,
        "values": 1,
    }
    assert "pages" in headrace("journal", "ls", "--store", pages.store).text
    assert [(job["resource"], job["state"], job["value"]) for job in pages.rows("ls")] == [
        ("a", "leased", "of a"),
        ("b", "pending", "of b"),
        ("c", "pending", "of c"),
    ]
    assert [job["resource"] for job in pages.rows("ls", "--state", "pending", "--count", "1")] == ["b"]
    assert "has no dead jobs" in pages("ls", "--state", "dead").err


def test_stats_count(pages: Journals) -> None:
    pages("put", "https://a.org/1")
    pages("put", "https://a.org/2", "--after", "1h", "--priority", "7")
    pages("put", "x", "--priority", "0")
    pages("next", "--lease", "1ms")
    time.sleep(0.01)
    facts = pages.json("stats")
    assert (facts["pending"], facts["ready"], facts["leased"], facts["overdue"]) == (2, 1, 1, 1)
    assert facts["by_priority"] == {"7": 1, "128": 1}
    assert facts["by_domain"] == {"a.org": 2}
    assert "domain a.org" in pages("stats").text


def test_jobs_that_failed_too_often_are_put_aside_and_redriven(pages: Journals) -> None:
    said = pages("create", "--max-attempts", "1", "--lease", "2h").text
    assert said.startswith("created journal pages\n")
    assert "error (refused)" in pages.refused("create")
    for resource in ("a", "b", "c"):
        pages("put", resource)
        pages("next")
        pages("fail", resource)
    assert [job["state"] for job in pages.rows("ls")] == ["dead"] * 3
    assert pages.json("redrive", "b")["count"] == 1
    assert pages("redrive").text == "2 dead jobs are due again\n"
    assert pages("redrive").text == "0 dead jobs are due again\n"
    assert sorted(pages.json("next")["resource"] for _ in range(3)) == ["a", "b", "c"]


def test_settings_can_be_changed_one_by_one(pages: Journals) -> None:
    pages("create", "--max-attempts", "3", "--history", "7d", "--fair")
    pages("put", "a")
    pages("create", "--change", "--max-attempts", "5", "--not-fair")
    with hr.open(pages.store) as store, store.journal("pages") as journal:
        settings = journal.settings
        assert (settings.max_attempts, settings.history, settings.fair) == (5, "7d", False)
        assert journal.stats().pending == 1
    assert "error (bad_duration)" in pages.refused("create", "--change", "--lease", "soon")


def test_an_id_names_a_job_whatever_its_resource(pages: Journals) -> None:
    pages("put", "a")
    pages("put", "7")
    first, second = pages.json("next"), pages.json("next")
    pages("done", str(second["id"]))
    assert "error (lease_lost)" in pages.refused("done", str(second["id"]))
    pages("fail", str(first["id"]), "--retry-in", "1h")


def test_a_journal_that_is_in_use_can_be_looked_at_but_not_changed(
    pages: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_verbs, "_PATIENCE_S", 0.0)
    with hr.open(pages.store) as store, store.journal("pages") as journal:
        journal.put("a", value="x")
        for words in (("put", "b"), ("next",), ("get", "k"), ("redrive",)):
            said = pages.refused(*words)
            assert "error (journal_taken)" in said
            assert "headrace journal serve" in said
        assert pages.json("stats")["pending"] == 1
        assert [job["value"] for job in pages.rows("ls")] == ["x"]


def test_a_command_waits_for_another_to_end(pages: Journals) -> None:
    with hr.open(pages.store) as store:
        journal = store.journal("pages")
        ending = threading.Timer(0.2, journal.close)
        ending.start()
        pages("put", "a")
        ending.join()


def test_while_one_waits_for_a_job_another_can_put_one(pages: Journals) -> None:
    pages("put", "tomorrow", "--after", "24h")
    putting = threading.Timer(0.3, lambda: _put(pages.store, "now"))
    putting.start()
    assert pages.json("next", "--wait", "30s")["resource"] == "now"
    putting.join()
    assert "nothing to work on" in pages.refused("next", "--wait", "50ms")


def test_a_job_that_becomes_due_is_waited_for(pages: Journals) -> None:
    pages("put", "soon", "--after", "300ms")
    assert pages.json("next", "--wait", "30s")["resource"] == "soon"


def test_watching_shows_what_happened_and_what_happens(pages: Journals) -> None:
    pages("put", "a", "--value", "7", "--type", "integer")
    pages("next", "--lease", "1h")
    pages("set", "k", "v")
    pages("done", "a")
    lines = pages("watch", "--from", "start", "--count", "4").lines
    assert [line.split()[1:3] for line in lines] == [["put", "a"], ["take", "a"], ["set", "k"], ["done", "a"]]
    assert "type=integer value=7" in lines[0]
    first = pages.rows("watch", "--from", "start", "--count", "1")[0]
    assert (first["index"], first["kind"], first["key"], first["value"]) == (0, "put", "a", 7)
    assert [row["kind"] for row in pages.rows("watch", "k", "--from", "0", "--count", "1")] == ["set"]
    coming = threading.Timer(0.3, lambda: _put(pages.store, "new"))
    coming.start()
    (seen,) = pages.rows("watch", "--count", "1")
    coming.join()
    assert (seen["kind"], seen["key"]) == ("put", "new")
    assert "is not an index" in pages.refused("watch", "--from", "now", code=2)


def test_what_a_journal_keeps_for_itself_is_not_shown(pages: Journals) -> None:
    with hr.open(pages.store) as store, store.journal("pages") as journal:
        journal.put_batch(["a"], once=("writer", 1))
        journal.set("k", 1)
    assert pages.json("stats")["values"] == 1
    assert [row["key"] for row in pages.rows("range")] == ["k"]
    assert [row["key"] for row in pages.rows("watch", "--from", "start", "--count", "2")] == ["a", "k"]


def test_a_damaged_journal_does_not_hide_the_others(pages: Journals) -> None:
    pages("put", "a")
    broken = pages.store / "journals" / "broken" / "log"
    broken.mkdir(parents=True)
    (broken / "meta.json").write_bytes(b"{")
    outcome = headrace("journal", "ls", "--store", pages.store)
    assert outcome.code == 3
    assert "pages" in outcome.text
    assert "journal 'broken' cannot be read" in outcome.err


def _put(store: Path, resource: str) -> None:
    with hr.open(store) as opened, opened.journal("pages") as journal:
        journal.put(resource)


def test_without_a_word_the_journals_are_listed_and_other_commands_ask_for_a_name(
    pages: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages("put", "a")
    monkeypatch.setenv("HEADRACE_STORE", str(pages.store))
    listed = headrace("journal", "ls")
    assert (listed.code, listed.lines[3].split()[:2]) == (0, ["pages", "1"])
    asked = headrace("journal", "next")
    assert (asked.code, asked.err.startswith("error (usage): Missing argument 'NAME'")) == (2, True)


def test_a_store_that_nobody_serves_takes_nothing_for_memory_only(pages: Journals) -> None:
    for words in (("put", "a"), ("set", "k", "v")):
        assert "it would be gone at once" in pages.refused(*words, "--volatile", code=2)
    assert not pages.store.exists()


def test_a_job_that_is_taken_for_good_has_no_lease(pages: Journals) -> None:
    pages("put", "a")
    taken = pages.json("next", "--done")
    assert (taken["lease_until"], taken["lease_until_us"]) == (None, None)
