"""`headrace journal --server URL`: what a node's journals can be asked beside what any server can."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.journals import Journals
from tests.cli.running import headrace

import headrace as hr
from conformance.faces import node
from headrace.server.tokens import TokenFile
from server.certificates import self_signed
from server.http_node import Daemon


@pytest.fixture
def url(place: Path) -> Iterator[str]:
    with node(place / "data") as where:
        yield where


@pytest.fixture
def pages(place: Path, url: str) -> Journals:
    return Journals(place / "data", url)


def listed(*words: str | Path) -> list[dict[str, Any]]:
    outcome = headrace("journal", "ls", *words, "--json")
    assert outcome.code == 0, outcome
    journals: list[dict[str, Any]] = outcome.json["journals"]
    return journals


def test_a_store_and_a_node_over_it_list_and_count_the_same(place: Path) -> None:
    with hr.open(place / "data") as store, store.journal("pages") as journal:
        for number in range(3):
            journal.put(f"https://a.org/{number}", priority=number, value=number)
        journal.next(lease="1h")
        journal.set("k", 1)
    local = Journals(place / "data")
    rows, stats = local.rows("ls"), local.json("stats")
    there = listed("--store", place / "data")
    with node(place / "data") as url:
        remote = Journals(place / "data", url)
        assert remote.rows("ls") == rows
        assert [row["state"] for row in remote.rows("ls", "--state", "pending", "--count", "1")] == [
            "pending"
        ]
        told = remote.json("stats")
        same = ("pending", "ready", "leased", "dead", "values", "by_priority", "by_domain", "oldest_due")
        assert {name: told[name] for name in same} == {name: stats[name] for name in same}
        (one,) = listed("--server", url)
        assert {**one, "bytes": 0} == {**there[0], "bytes": 0}
        assert "leased" in remote("stats").text


def test_journals_are_made_and_set(url: str, pages: Journals) -> None:
    made = pages.json("create", "--max-attempts", "2", "--lease", "2h")
    assert made["path"] == f"{url}/journals/pages"
    assert "already: change it with --change" in pages.refused("create")
    pages("put", "r")
    for _ in range(2):
        pages("fail", "r", "--retry-in", "0s", "--lease-until", str(pages.json("next")["lease_until_us"]))
    assert [row["state"] for row in pages.rows("ls")] == ["dead"]
    assert pages.json("redrive") == {"name": "pages", "count": 1}
    job = pages.json("next")
    assert job["resource"] == "r"
    pages("done", str(job["id"]))


def test_whoever_watches_a_key_is_told(url: str, pages: Journals) -> None:
    pages("set", "k", "text")
    assert "a server tells of one key" in pages.refused("watch", code=2)
    over = threading.Event()

    def change() -> None:  # again and again: when the command has begun to listen is not known here
        with hr.connect(url) as store:
            journal = store.journal("pages")
            while not over.wait(0.05):
                journal.set("k", 1)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        assert pages("watch", "k", "--count", "1").text == "k\tinteger\n"
    finally:
        over.set()
        changing.join()


def test_a_journal_that_is_not_there_is_told_and_one_that_is_made_as_well(pages: Journals) -> None:
    for verb, *words in (("get", "k"), ("next",), ("stats",), ("done", "1"), ("redrive",), ("watch", "k")):
        assert "error (not_found): there is no journal 'pages' at http" in pages.refused(verb, *words)
    outcome = pages("put", "r")
    assert "made the journal 'pages' at http" in outcome.err
    assert pages("put", "s").err == ""


def test_with_tls_and_a_token(place: Path) -> None:
    cert, key = self_signed(place)
    hr.open(place / "data").close()
    token = TokenFile(place / "data").create("me", ["admin:pages"]).secret
    daemon = Daemon(place / "data", "--tls-cert", str(cert), "--tls-key", str(key), "--log-level", "error")
    try:
        pages = Journals(place / "data", f"https://localhost:{daemon.port}")
        safe = ("--ca", cert, "--token", token)
        pages("put", "r", *safe)
        assert pages.json("next", *safe)["resource"] == "r"
        assert "the certificate of https://localhost:" in pages.refused("get", "k", "--token", token)
        assert "error (unauthorized)" in pages.refused("get", "k", "--ca", cert)
        assert "error (unauthorized)" in pages.refused("get", "k", "--ca", cert, "--token", "hr_wrong")
    finally:
        daemon.kill()


def test_an_address_that_is_none_is_told(place: Path) -> None:
    for address in ("http://", "http://localhost:port", "https://[::1"):
        said = Journals(place, address).refused("get", "k")
        assert said.startswith("error (")
