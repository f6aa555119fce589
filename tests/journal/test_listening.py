"""Who listens to a value is told of every change, in their order, and soon."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.journal import Journal, Type, ledger, open_journal
from headrace.journal.listeners import Listeners
from headrace.journal.new_jobs import NewJob
from headrace.kernel.clock import ManualClock

START_US = 1_700_000_000_000_000
PATIENCE_S = 60
"""Never reached unless something hangs."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US)


@pytest.fixture
def journal(place: Path, clock: ManualClock, monkeypatch) -> Iterator[Journal]:
    """One with a job that is not on the disk yet; nothing happens in the background."""
    monkeypatch.setattr(ledger.Ledger, "start", lambda self: None)
    with open_journal(place / "journal", clock=clock) as journal:
        journal.set("k", 1)
        leave_unsynced(journal)
        yield journal


def leave_unsynced(journal: Journal) -> None:
    """Do something that nobody waits for."""
    engine = journal.engine
    engine.start(lambda now: engine.jobs.put(now, NewJob(b"r", "", 1, now, 1, b"", now)))


@pytest.fixture
def told(journal: Journal) -> list[tuple[str, Type]]:
    told: list[tuple[str, Type]] = []
    journal.listen("k", lambda key, kind: told.append((key, kind)))
    return told


def test_a_change_in_memory_only_is_told_at_once_whatever_is_on_its_way_to_the_disk(journal, told):
    journal.set("v", 1, persist=False)
    journal.listen("v", lambda key, kind: told.append((key, kind)))
    journal.set("v", "text", persist=False)
    assert told == [("v", Type.STRING)]


def test_a_change_in_memory_only_is_told_after_those_before_it(journal, told):
    engine = journal.engine
    _result, ticket = engine.start(lambda now: engine.values.delete(now, b"k", None))
    journal.set("k", "text", persist=False)
    assert told == []
    engine.settle(ticket)
    assert told == [("k", Type.VOID), ("k", Type.STRING)]


def test_that_a_value_expired_is_told_without_anybody_else_writing(journal, told, clock):
    engine = journal.engine
    journal.set("k", 2, ttl=5)
    told.clear()
    leave_unsynced(journal)
    clock.advance(10)
    engine._care()
    assert told == [("k", Type.VOID)]


def test_what_a_pour_made_safe_is_told(journal, told):
    engine = journal.engine
    engine.start(lambda now: engine.values.delete(now, b"k", None))
    engine._care()
    assert told == []
    engine.pour()
    engine._care()
    assert told == [("k", Type.VOID)]


@pytest.mark.parametrize("persist", [True, False])
def test_all_keys_of_a_value_are_told_when_it_changes_to_memory_only(journal, told, persist):
    journal.set("a", 1)
    journal.delete("k")
    journal.link("a", "k")
    told.clear()
    journal.set("a", "text", persist=persist)
    assert told == [("k", Type.STRING)]


def test_a_listener_may_change_what_it_listens_to(journal, told):
    def answer(key: str, kind: Type) -> None:
        if kind == Type.STRING:
            journal.set("k", 1.5)

    journal.listen("k", answer)
    journal.set("k", "text")
    assert [kind for _key, kind in told] == [Type.STRING, Type.FLOAT]


def test_two_threads_tell_in_the_order_of_the_changes():
    """One is stopped while it tells of the first change; the other one's change is told after it."""
    listeners = Listeners(lambda: 0)
    told, inside, go_on = [], threading.Event(), threading.Event()

    def slow(key: bytes, kind: int) -> None:
        if kind == 1:
            inside.set()
            assert go_on.wait(PATIENCE_S)
        told.append(kind)

    listeners.add(b"k", slow)
    listeners.changed(b"k", 1, True)
    first = threading.Thread(target=listeners.tell, args=(9,))
    first.start()
    assert inside.wait(PATIENCE_S)
    listeners.changed(b"k", 2, True)
    listeners.tell(9)
    go_on.set()
    first.join(PATIENCE_S)
    assert told == [1, 2]


def test_a_listener_that_raises_does_not_silence_those_after_it(caplog):
    listeners = Listeners(lambda: 0)
    told = []

    def broken(key: bytes, kind: int) -> None:
        raise ValueError

    listeners.add(b"k", broken)
    listeners.add(b"k", lambda key, kind: told.append(kind))
    for kind in (1, 2):
        listeners.changed(b"k", kind, True)
        listeners.tell(9)
    assert told == [1, 2]
    assert caplog.text.count("a listener to b'k' failed") == 2


def test_a_listener_that_raises_harms_neither_the_journal_nor_who_changes_something(journal, clock):
    def broken(key: str, kind: Type) -> None:
        raise ValueError

    journal.listen("k", broken)
    journal.set("k", 2, ttl="1s")
    clock.advance(2)
    journal.engine._care()
    assert journal.usable
