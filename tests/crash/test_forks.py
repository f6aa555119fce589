"""Forked children: what they do with what their parent has open for writing changes nothing."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.journal import JournalSettings, open_journal
from headrace.kernel.errors import Broken, Closed, ReadOnly, WriterTaken
from headrace.log import Log, Settings

from .entries import SCHEMA, batch_of
from .judge import look, read_all
from .scenes import append, as_dict, entries


def in_child(act: Callable[[], object], meanwhile: Callable[[], object]) -> int:
    """Fork; the parent does `meanwhile`, then the child `act`. How the child ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(reading, 1)
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    try:
        meanwhile()
    finally:
        os.write(writing, b"!")
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(reading)
        os.close(writing)
    return status


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("buffers", [1, 4])
def test_a_child_that_closes_the_log_takes_nothing_from_its_parent(place: Path, buffers: int) -> None:
    log = Log.open(place / "log", SCHEMA, Settings(write_buffers=buffers))
    made = append(log, 3)
    log.sync()
    made += append(log, 1)

    def meanwhile() -> None:
        made.extend(append(log, 3))
        log.sync()

    assert in_child(log.close, meanwhile) == 0
    with pytest.raises(WriterTaken):
        Log.open(place / "log")
    made += append(log, 2)
    log.close()
    seen, report = look(place / "log")
    assert report.ok
    assert seen.entries == as_dict(made)


def test_a_child_reads_and_does_not_write(place: Path) -> None:
    log = Log.open(place / "log", SCHEMA)
    made = append(log, 3)

    def act() -> None:
        assert read_all(log).entries == as_dict(made, entries(3, 1))
        with pytest.raises(ReadOnly, match="the parent of this process"):
            log.append(batch_of(entries(4, 1)))
        log.close()

    with log._lock:  # another thread has it at the moment of the fork
        assert in_child(act, lambda: append(log, 1)) == 0
    log.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_that_leaves_a_publisher_publishes_nothing(place: Path) -> None:
    with hr.open(place / "store") as store:
        stream = store.stream("numbers", bytes)
        publisher = stream.publisher(background=False)
        publisher.publish(b"1")

        def act() -> None:
            with pytest.raises(Closed):
                publisher.publish(b"of the child")
            publisher.close()

        with publisher._batcher._lock:
            assert in_child(act, lambda: None) == 0
        publisher.publish(b"2")
        publisher.close()
        assert [entry.value for entry in stream.listen()] == [b"1", b"2"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_child_adds_nothing_to_the_journal_of_its_parent(place: Path, durability: Any) -> None:
    journal = open_journal(place / "journal", JournalSettings(durability=durability))
    journal.put("before")

    def act() -> None:
        for verb in (lambda: journal.put("child"), lambda: journal.set("k", 1), journal.next, journal.stats):
            with pytest.raises(Broken, match="the parent of this process has it open"):
                verb()
        journal.close()

    with journal.engine._ledger.lock:  # another thread has it at the moment of the fork
        child = os.fork()
        if child == 0:
            try:
                act()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    journal.put("after")
    journal.close()
    with open_journal(place / "journal") as journal:
        assert [job.resource for job in journal.jobs()] == ["before", "after"]
