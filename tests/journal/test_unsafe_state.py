"""What is done and not on the disk yet: nobody is answered because of it, and no part of it counts."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.journal import Journal, JournalSettings, KeyTaken, NoSuchKey, ledger, open_journal
from headrace.journal.new_jobs import NewJob
from headrace.journal.value_operations import NewValue
from headrace.kernel.errors import Broken, HeadraceError
from headrace.log.disk import sync_failed
from headrace.log.settings import Durability

PATIENCE_S = 60
"""Never reached unless something hangs."""


@pytest.fixture(autouse=True)
def _nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger.Ledger, "start", lambda self: None)


@pytest.fixture
def journal(place: Path) -> Iterator[Journal]:
    with open_journal(place / "j") as journal:
        yield journal
        journal.let_go()


def value(key: bytes) -> NewValue:
    return NewValue(key, 1, b"v", None)


def put(journal: Journal) -> str:
    """What came of it."""
    try:
        journal.put("job")
    except HeadraceError as error:
        return type(error).__name__
    return "done"


def write_outdated(journal: Journal) -> None:
    assert not journal.set("later", 1, timestamp_us=5)


def put_again(journal: Journal) -> None:
    assert journal.put_batch(["a"], once=("writer", 1)) == []


def put_overtaken(journal: Journal) -> None:
    engine = journal.engine
    engine.do(lambda now: engine.jobs.put(now, NewJob(b"a", "", 1, now, 0, b"", 5)))


def delete_again(journal: Journal) -> None:
    with pytest.raises(NoSuchKey):
        journal.delete("gone", timestamp_us=5)


def set_again(journal: Journal) -> None:
    with pytest.raises(KeyTaken):
        journal.set("later", 1, overwrite=False)


@pytest.mark.parametrize("repeat", [write_outdated, put_again, put_overtaken, delete_again, set_again])
def test_what_has_nothing_to_change_waits_for_what_made_it_so(
    journal: Journal, repeat: Callable[[Journal], None]
) -> None:
    engine = journal.engine
    journal.set("gone", 1, timestamp_us=1)

    def first(now: int) -> None:
        engine.values.first_time(now, "writer", 1)
        engine.jobs.put(now, NewJob(b"a", "", 1, now, 0, b"", None))
        engine.values.set(now, value(b"later"))
        engine.values.delete(now, b"gone", 10)

    _result, ticket = engine.start(first)
    assert engine._ledger.settled < ticket
    repeat(journal)
    assert engine._ledger.settled >= ticket


def test_what_is_for_memory_only_waits_for_nobody(journal: Journal) -> None:
    engine = journal.engine
    _result, ticket = engine.start(lambda now: engine.values.set(now, value(b"k")))
    journal.set("other", 1, persist=False)
    journal.put("job", persist=False)
    assert journal.next()
    assert engine._ledger.settled < ticket


def test_of_two_syncs_at_once_both_fail_though_only_one_is_told(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells one of them that pages were lost, and the other one that all is well."""
    engine, told = journal.engine, list[str]()
    _result, _ticket = engine.start(lambda now: engine.values.set(now, value(b"k")))
    engine.write()
    other = threading.Thread(target=lambda: told.append(put(journal)))
    sync = engine._ledger._tail.sync

    def fail(unsynced: list[tuple[int, int]]) -> None:
        monkeypatch.setattr(engine._ledger._tail, "sync", sync)
        other.start()
        other.join(0.5)
        raise sync_failed(journal.engine.path, OSError(errno.EIO, "lost"))

    monkeypatch.setattr(engine._ledger._tail, "sync", fail)
    with pytest.raises(Broken):
        engine.pour()
    other.join(PATIENCE_S)
    assert told == ["Broken"]


def test_who_waits_for_a_sync_while_the_journal_is_closed_is_told_no_failure(journal: Journal) -> None:
    engine, books = journal.engine, journal.engine._ledger
    engine.start(lambda now: engine.values.set(now, value(b"k")))
    _reached, unsynced = books.write_apart()
    journal.close()
    assert unsynced
    books._sync(unsynced)  # as a thread does that had come so far


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_part_of_an_operation_never_counts(
    place: Path, interrupt: type[BaseException], durability: Durability
) -> None:
    journal = open_journal(place / "i", JournalSettings(durability=durability))
    engine = journal.engine
    journal.put("whole")

    def operation(now: int) -> None:
        engine.jobs.put(now, NewJob(b"part", "", 1, now, 0, b"", None))
        raise interrupt

    with pytest.raises(interrupt):
        engine.do(operation)
    assert not journal.usable
    with pytest.raises(Broken):
        journal.put("later")
    with pytest.raises(Broken):
        engine._ledger.pour()
    journal.let_go()
    with open_journal(place / "i") as again:
        assert [job.resource for job in again.jobs()] == ["whole"]


def test_a_mistake_in_the_fold_does_not_go_unnoticed(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = journal.put_batch([f"{n}" for n in range(8)], domain="d")
    monkeypatch.setattr(journal.engine.state.jobs.schedule, "leave_series", None)
    with pytest.raises(TypeError):
        journal.next_batch(8, "d")
    assert not journal.usable
    journal.let_go()
    with open_journal(journal.engine.path) as again:
        assert [job.id for job in again.jobs()] == ids


def test_an_operation_that_is_refused_breaks_nothing(journal: Journal, place: Path) -> None:
    engine = journal.engine
    with pytest.raises(ZeroDivisionError):
        engine.run([(lambda now: engine.values.set(now, value(b"k")), 9), (lambda now: 1 // 0, 9)])
    with pytest.raises(ZeroDivisionError):
        engine.do(lambda now: 1 // 0)
    journal.put("a")
    shutil.copytree(journal.engine.path, place / "killed")
    with open_journal(place / "killed") as again:
        assert again.stats().pending == 1
