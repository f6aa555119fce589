"""Copies of a node's journals: what is done there is here a moment later, and goes on here if it must."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.journal import Job, JournalTaken, NotWhole, ledger, sweep
from headrace.kernel.errors import DiskFull, Diverged, IsReplica, NotFound, Refused
from headrace.log import Log
from journal.test_sweep import settle_down
from log.copies import past
from proxy import Proxy
from server.http_node import Served, served
from waiting import until

from .replicas import Running, replica


@pytest.fixture(autouse=True)
def _pours_only_for_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in a copy is there because it was asked for, not because a second has passed."""
    monkeypatch.setattr(ledger, "_POUR_AFTER_S", 3600.0)


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "source") as one:
        one.ask.done("PUT", "/journals/pages")
        yield one


def url(node: Served) -> str:
    return f"http://127.0.0.1:{node.ask.port}"


def put(node: Served, *resources: str) -> None:
    for resource in resources:
        node.ask.done("POST", "/journals/pages/put", {"resource": resource})


def journal_replica(store: Path, node: Served, **how: Any) -> Any:
    return replica(store, url(node), "pages", kind="journals", **how)


def fetched(store: Path, node: Served) -> Running:
    """A copy that has all that was acknowledged before."""
    with journal_replica(store, node, once=True) as running:
        assert running.ended() is None
    return running


def log_of(store: Path) -> Path:
    return store / "journals" / "pages" / "log"


def resources(store: Path) -> dict[str, str]:
    """The jobs of a copy that was made a journal of its own, and their states."""
    with hr.open(store) as opened:
        opened.unfollow_journal("pages")
        return {job.resource: job.state for job in opened.journal("pages").jobs()}


def test_work_goes_on_in_the_copy_when_the_source_is_lost(node: Served, place: Path) -> None:
    put(node, "a", "b", "c")
    with journal_replica(place / "copy", node) as following:
        taken = node.ask.done("POST", "/journals/pages/next", {"lease": 3600})["job"]
        node.ask.done("POST", "/journals/pages/set", {"key": "visits", "value": 41})
        end = node.store.journal("pages").engine._ledger.upcoming
        following.reaches(end)  # soon, though nothing is poured for a second
        assert following.state.phase == "following"
        with hr.open(place / "copy") as store:
            with pytest.raises(IsReplica, match="headrace journal unfollow"):
                store.journal("pages")
            with pytest.raises(JournalTaken):
                store.unfollow_journal("pages")
            with pytest.raises(JournalTaken):
                store.drop_journal("pages")
    assert past(log_of(place / "copy")) == past(log_of(place / "source"))
    node.stop()
    with hr.open(place / "copy") as store:
        origin = store.unfollow_journal("pages")
        assert (origin.name, origin.url) == ("pages", url(node))
        pages = store.journal("pages")
        assert [job.state for job in pages.jobs() if job.id == taken["id"]] == ["leased"]
        pages.done(taken["id"])
        assert {job.resource for job in pages.jobs()} == {"b", "c"}
        following_job = pages.next()
        assert isinstance(following_job, Job)
        assert following_job.resource == "b"
        visits = pages.get("visits")
        assert visits is not None
        assert visits.value == 41
    with hr.open(place / "copy") as store, pytest.raises(Refused, match="no copy"):
        store.unfollow_journal("pages")
    with journal_replica(place / "copy", node) as again:
        assert "of its own" in str(again.ended())


def test_once_fetches_all_that_was_acknowledged_and_only_what_is_missing(node: Served, place: Path) -> None:
    put(node, *(f"r{number}" for number in range(20)))
    assert fetched(place / "copy", node).state.entries == 20
    put(node, "one more")
    assert fetched(place / "copy", node).state.entries == 1
    assert fetched(place / "copy", node).state.entries == 0
    assert len(resources(place / "copy")) == 21


def test_a_source_that_sweeps_is_followed_in_that_too(
    node: Served, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 40)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 25)
    put(node, "lives")
    pages = node.store.journal("pages")
    with journal_replica(place / "copy", node) as following:
        for number in range(400):
            pages.set("k", number)
            if number % 40 == 0:
                settle_down(pages)
        settle_down(pages)
        following.reaches(pages.engine.log.next_index)
        with Log.open(log_of(place / "copy"), read_only=True) as copy:
            until(lambda: copy.first_index == pages.engine.log.first_index > 300)
    assert past(log_of(place / "copy")) == past(log_of(place / "source"))
    assert resources(place / "copy") == {"lives": "pending"}


def test_a_copy_that_was_away_for_too_long_begins_anew_and_is_whole_all_the_time(
    node: Served, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 40)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 25)
    full = [False, True, True, False]  # as a disk may be for a while
    real = hr.Store.follow_journal

    def follow(store: hr.Store, *what: Any, **how: Any) -> Any:
        if full and full.pop(0):
            raise DiskFull("no room")
        return real(store, *what, **how)

    put(node, "lives")
    fetched(place / "copy", node)
    monkeypatch.setattr(hr.Store, "follow_journal", follow)
    pages = node.store.journal("pages")
    for number in range(100):
        pages.set("k", number)
    settle_down(pages)
    assert pages.engine.log.first_index > 1
    with journal_replica(place / "copy", node) as following:
        following.reaches(pages.engine.log.next_index)
        put(node, "later")
        following.reaches(pages.engine.log.next_index + 1)
    assert following.error is None
    assert not full
    assert past(log_of(place / "copy")) == past(log_of(place / "source"))
    assert set(resources(place / "copy")) == {"lives", "later"}


def test_a_source_that_was_replaced_or_cut_is_refused_and_the_copy_stays(place: Path) -> None:
    with served(place / "source") as node:
        node.ask.done("PUT", "/journals/pages")
        put(node, "a", "b", "c")
        fetched(place / "copy", node)
    with Log.open(log_of(place / "source")) as log:
        log.truncate(2)
    for tail in ("tail-0", "tail-1"):
        (log_of(place / "source").parent / tail).unlink()
    with served(place / "source") as node:
        put(node, "other")
        with journal_replica(place / "copy", node) as cut:
            assert isinstance(cut.ended(), Diverged)
    with hr.open(place / "source") as store:
        store.drop_journal("pages")
        assert store.journals() == []
    with served(place / "source") as node:
        node.ask.done("PUT", "/journals/pages")
        put(node, *"abcdef")
        with journal_replica(place / "copy", node) as replaced:
            assert isinstance(replaced.ended(), Diverged)
        assert "headrace journal drop" in str(replaced.error)
        assert "another journal of that name" in str(replaced.error)
        fetched(place / "another", node)
    assert set(resources(place / "copy")) == {"a", "b", "c"}
    assert set(resources(place / "another")) == set("abcdef")


def test_a_source_that_is_restarted_is_followed_on(place: Path) -> None:
    with served(place / "source") as node:
        node.ask.done("PUT", "/journals/pages")
        put(node, "a")
        proxy = Proxy(("127.0.0.1", node.ask.port))
        with proxy, replica(place / "copy", proxy.url, "pages", kind="journals") as following:
            following.reaches(1)
            node.stop()
            until(lambda: following.state.phase == "waiting" and bool(following.state.error))
            with served(place / "source") as again:
                put(again, "b")
                proxy.server = ("127.0.0.1", again.ask.port)
                following.reaches(2)
    assert set(resources(place / "copy")) == {"a", "b"}


def test_a_copy_can_be_copied_and_one_that_is_not_whole_says_so(node: Served, place: Path) -> None:
    put(node, "a")
    with journal_replica(place / "second", node) as second:
        second.reaches(1)
        with served(place / "second") as middle, journal_replica(place / "third", middle) as third:
            third.reaches(1)
            put(node, "b")
            third.reaches(2)
            answer = middle.ask("POST", "/journals/pages/put", {"resource": "c"})
            assert (answer.status, answer.error) == (409, "is_replica")
            assert middle.ask.done("GET", "/journals/pages/history/reach")["settled"] == 2
    (log_of(place / "second") / "positions" / "state").unlink()
    with served(place / "second") as middle, journal_replica(place / "fourth", middle) as fourth:
        until(lambda: fourth.state.phase == "waiting")
        assert "not whole" in fourth.state.error
    with hr.open(place / "second") as store, pytest.raises(NotWhole):
        store.unfollow_journal("pages")
    assert set(resources(place / "third")) == {"a", "b"}


def test_what_is_not_there_and_what_is_no_copy(node: Served, place: Path) -> None:
    with replica(place / "copy", url(node), "other", kind="journals") as none:
        assert isinstance(none.ended(), NotFound)
    with hr.open(place / "own") as store:
        store.journal("pages").put("mine")
    with journal_replica(place / "own", node) as refused:
        assert isinstance(refused.ended(), Refused)
    assert "--as" in str(refused.error)
    put(node, "a")
    with journal_replica(place / "own", node, local="theirs", once=True) as beside:
        assert beside.ended() is None
    with hr.open(place / "own") as store:
        assert store.journals() == ["pages", "theirs"]
        with pytest.raises(NotFound):
            store.unfollow_journal("nothing")


def test_the_other_copies_go_on_from_the_one_that_became_the_journal(node: Served, place: Path) -> None:
    put(node, "a")
    fetched(place / "behind", node)
    put(node, "b")
    fetched(place / "chosen", node)
    put(node, "c")
    fetched(place / "ahead", node)
    node.stop()
    with hr.open(place / "chosen") as store:
        store.unfollow_journal("pages")
    with served(place / "chosen") as chosen:
        put(chosen, "d")
        fetched(place / "behind", chosen)
        with journal_replica(place / "ahead", chosen) as ahead:
            assert isinstance(ahead.ended(), Diverged)
    assert past(log_of(place / "behind")) == past(log_of(place / "chosen"))
    assert set(resources(place / "behind")) == {"a", "b", "d"}
