"""Copies of journals: whenever the source is lost, the copy is what the journal was some moment before."""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from shutil import copytree, rmtree

import pytest

from headrace.journal import (
    Job,
    Journal,
    JournalSettings,
    JournalTaken,
    KeyTaken,
    NoSuchKey,
    NotWhole,
    open_journal,
    sweep,
)
from headrace.journal.copy import JournalCopy, follow, unfollow
from headrace.journal.reading import ReadValues, read_state
from headrace.journal.replay import STATE
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import IsReplica, NotFound, ReadOnly, Refused, Trimmed
from headrace.log.copy import Origin
from headrace.log.disk import Disk
from headrace.log.frame_stream import FrameEncoder, FrameParser, Note
from headrace.log.log import Log
from headrace.log.positions import read_positions
from headrace.store import open_store

from .test_sweep import START_US, all_of, settle_down

SEEDS = 40 if os.environ.get("HEADRACE_CAMPAIGN") else 2
ORIGIN = Origin("http://source:7400", "j")


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 40)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 25)


class Line:
    """From a journal to a copy of it, a few frames at a time."""

    def __init__(self, journal: Journal, copy: JournalCopy) -> None:
        self._log, self._copy = journal.engine.log, copy
        self._cursor = self._log.frames(copy.claim, "journal")
        self._encoder, self._parser = FrameEncoder(self._cursor.salt), FrameParser()

    def send(self, count: int = 1000) -> int:
        """The next frames; how many there were."""
        base = self._log.first_index
        state = read_positions(Disk(), self._log.path).get(STATE, 0)
        note = Note(end=self._log.settled.next_index, base=base, state=state)
        frames = list(islice(iter(self._cursor.next_frame, None), count))
        for portion in self._parser.feed(b"".join(self._encoder.portion(note, frames))):
            owed = self._copy.noted(portion.note)
            if portion.frames or owed:
                self._copy.land(portion.frames)
                self._copy.sync()
        return len(frames)

    def close(self) -> None:
        self._cursor.close()


def copied(journal: Journal, place: Path) -> None:
    """All of it, over one line."""
    journal.engine.pour()
    copy = follow(Disk(), place, ORIGIN)
    line = Line(journal, copy)
    while line.send():
        pass
    line.close()
    copy.close()


def test_a_copy_is_looked_at_and_then_goes_on_as_a_journal(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(lease="1h", max_attempts=3)) as journal:
        journal.put("a", value="first")
        journal.put("b")
        taken = journal.next()
        assert isinstance(taken, Job)
        journal.set("visits", 41)
        before = all_of(journal)
        copied(journal, place / "copy")
    with pytest.raises(IsReplica, match="headrace journal unfollow"):
        open_journal(place / "copy")
    assert len(read_state(place / "copy").jobs) == 2
    values = ReadValues(place / "copy")
    assert [(each.key, each.value) for each in values.range()] == [("visits", 41)]
    found = values.get("visits")
    assert found is not None
    assert found.value == 41
    with pytest.raises(ReadOnly):
        values.set("visits", 42)
    assert unfollow(Disk(), place / "copy") == ORIGIN
    with open_journal(place / "copy") as promoted:
        assert all_of(promoted) == before
        assert (promoted.settings.lease, promoted.settings.max_attempts) == ("1h", 3)
        promoted.done(taken)  # the lease is as it was
        assert promoted.put("c")
        assert promoted.next().resource == "b"


def test_what_is_no_copy_is_not_followed_into_nor_unfollowed(place: Path) -> None:
    with open_journal(place / "j") as journal:
        journal.put("a")
    with pytest.raises(Refused, match="a journal of its own"):
        follow(Disk(), place / "j", ORIGIN)
    with pytest.raises(Refused, match="no copy"):
        unfollow(Disk(), place / "j")


def live(journal: Journal, chance: Random, jobs: list[Job]) -> None:
    """One change of any kind."""
    number = chance.randrange(12)
    match chance.choice(["put", "put", "next", "done", "fail", "set", "set", "delete", "link", "cancel"]):
        case "put":
            journal.put(f"r{number}", priority=number, value=str(chance.random()))
        case "next":
            job = journal.next()
            if isinstance(job, Job):
                jobs.append(job)
        case "done" if jobs:
            journal.done(jobs.pop())
        case "fail" if jobs:
            journal.fail(jobs.pop(0), retry_in=5)
        case "delete" if journal.get(f"k{number}") is not None:
            journal.delete(f"k{number}")
        case "link" if journal.get(f"k{number}") is not None:
            with suppress(KeyTaken):
                journal.link(f"k{number}", f"l{number}")
        case "cancel":
            with suppress(NoSuchKey):
                journal.cancel(f"r{number}")
        case _:
            journal.set(f"k{number}", chance.random())


@pytest.mark.parametrize("history", [None, "forever"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_copy_is_at_every_moment_what_its_source_was(place: Path, seed: int, history: str | None) -> None:
    """Through sweeps, lines that end anywhere, and copies that are opened again or begin anew."""
    chance, clock = Random(seed), ManualClock(START_US)
    settings = JournalSettings(durability="os", history=history, keep_deleted=1)
    moments, states, jobs = [0], list[object]([([], [])]), list[Job]()
    promoted, pace = 0, 0.4 if seed % 2 else 0.1
    with open_journal(place / "j", settings, clock=clock) as journal:
        follower = Follower(journal, place / "copy")
        for step in range(500):
            live(journal, chance, jobs)
            clock.advance(0.1)
            moments.append(journal.engine._ledger.upcoming)
            states.append(all_of(journal))
            if chance.random() < 0.2:
                settle_down(journal)
            if chance.random() < pace:
                follower.take(chance.randint(1, 3))
            if chance.random() < 0.05:
                follower.ask_again()
            if step % 25 == 24:
                promoted += judged(place, clock, moments, states)
        settle_down(journal)
        while follower.take(1000):
            pass
        follower.close()
        with Log.open(place / "copy" / "log", read_only=True) as copy:
            assert copy.next_index == journal.engine.log.next_index
            assert copy.first_index == journal.engine.log.first_index
        assert read_positions(Disk(), place / "copy" / "log")[STATE] == journal.engine.swept
        assert journal.engine.swept > 200
        assert judged(place, clock, moments, states)
    if seed == 1:
        assert promoted > 5
    if seed == 0 and history is None:
        assert follower.began_anew


class Follower:
    """What a replica does, step by step."""

    def __init__(self, journal: Journal, path: Path) -> None:
        self._journal, self._path = journal, path
        self.began_anew = 0
        self._open()

    def take(self, count: int) -> int:
        try:
            taken = self._line.send(count)
        except Trimmed:
            self._line.close()
            self._begin_anew()
            return 1
        if self._copy.done_with:
            self.close()
            self._open()
        return taken

    def ask_again(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self._line.close()
        self._copy.close()

    def _open(self) -> None:
        self._copy = follow(Disk(), self._path, ORIGIN)
        try:
            self._line = Line(self._journal, self._copy)
        except Trimmed:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._copy.close()
        self._copy = follow(Disk(), self._path, ORIGIN, anew=True)
        self.began_anew += 1
        self._line = Line(self._journal, self._copy)


def judged(place: Path, clock: ManualClock, moments: list[int], states: list[object]) -> bool:
    """Lose the source now: what the copy is then, as a journal of its own."""
    lost = place / f"lost-{len(moments)}"
    copytree(place / "copy", lost, dirs_exist_ok=True)
    try:
        unfollow(Disk(), lost)
    except (NotFound, NotWhole):
        return False
    with Log.open(lost / "log", read_only=True) as log:
        end = log.next_index
    with open_journal(lost, clock=clock) as promoted:
        assert all_of(promoted) == states[bisect_right(moments, end) - 1]
    rmtree(lost)
    return True


def test_a_copy_that_never_was_whole_is_not_taken_for_the_journal(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        for number in range(30):
            journal.put(f"r{number}")
            journal.engine.pour()
        copy = follow(Disk(), place / "copy", ORIGIN)
        line = Line(journal, copy)
        line.send(5)
        line.close()
        copy.close()
    with pytest.raises(NotWhole):
        read_state(place / "copy")
    with pytest.raises(NotWhole):
        unfollow(Disk(), place / "copy")
    unfollow(Disk(), place / "copy", partly=True)
    with open_journal(place / "copy") as journal:
        assert journal.stats().pending == 4  # of five frames the first says what they are


def test_a_copy_that_was_away_for_too_long_is_told_so_and_history_gives_it_time(place: Path) -> None:
    for name, history in (("short", None), ("long", "1h")):
        with open_journal(place / name, JournalSettings(durability="os", history=history)) as journal:
            journal.put("lives")
            copied(journal, place / f"{name}-copy")
            for number in range(200):
                journal.set("k", number)
                if number % 20 == 0:
                    settle_down(journal)
            settle_down(journal)
            if history is None:
                with pytest.raises(Trimmed, match="headrace journal drop"):
                    copied(journal, place / f"{name}-copy")
            else:
                copied(journal, place / f"{name}-copy")
    unfollow(Disk(), place / "long-copy")
    with open_journal(place / "long-copy") as promoted:
        found = promoted.get("k")
        assert found is not None
        assert found.value == 199


def test_what_a_source_that_was_lost_told_does_not_count_for_the_next_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had said anew what is alive further on, where the copy that came in its place has other events."""
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        journal.put("lives")
        copied(journal, place / "next")
        copied(journal, place / "copy")
        copy = follow(Disk(), place / "copy", ORIGIN)
        line = Line(journal, copy)
        for number in range(200):
            journal.set("k", number)
        settle_down(journal)
        line.send(0)  # it is told where the source stands, and gets nothing
        line.close()
        copy.abandon()
        end = journal.engine.log.next_index
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 1000)
    unfollow(Disk(), place / "next")
    with open_journal(place / "next") as journal:
        for number in range(end):
            journal.set("k", number)
        journal.engine.pour()
        line = Line(journal, copy)
        while line.send():
            pass
        line.close()
        copy.close()
    assert len(read_state(place / "copy").jobs) == 1


def test_a_copy_does_not_grow_for_ever(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(durability="os")) as journal:
        for _ in range(10):
            for number in range(40):
                journal.set("k", str(number) * 100)
            copied(journal, place / "copy")
            roll(place / "copy")
            journal.engine.log.roll()
            settle_down(journal)
        copied(journal, place / "copy")
        sizes = [
            sum(file.stat().st_size for file in (place / name / "log").glob("*.seg"))
            for name in ("j", "copy")
        ]
        assert sizes[1] <= sizes[0] * 2
        assert journal.engine.log.first_index > 200


def roll(path: Path) -> None:
    """As a segment that is full."""
    copy = follow(Disk(), path, ORIGIN)
    assert copy._appender is not None
    copy._appender.roll()
    copy.close()


def begun_anew(place: Path, journal: Journal) -> JournalCopy:
    """A copy that is whole and has not taken its place yet, beside one that lacks a job."""
    journal.put("old")
    copied(journal, place / "copy")
    journal.put("new")
    journal.engine.pour()
    anew = follow(Disk(), place / "copy", ORIGIN, anew=True)
    line = Line(journal, anew)
    while line.send():
        pass
    line.close()
    assert anew.done_with
    return anew


def test_a_copy_that_begins_anew_takes_its_place_when_it_is_whole(place: Path) -> None:
    with open_journal(place / "j") as journal:
        anew = begun_anew(place, journal)
        assert len(read_state(place / "copy").jobs) == 1
        with pytest.raises(JournalTaken):
            unfollow(Disk(), place / "copy")
        anew.close()
        assert len(read_state(place / "copy").jobs) == 2
        assert [each.name for each in (place / "copy").iterdir()] == ["log"]
        journal.put("newer")
        anew = follow(Disk(), place / "copy", ORIGIN, anew=True)
        line = Line(journal, anew)
        line.send(1)
        line.close()
        anew.close()  # it never was whole: the old one stays
        assert len(read_state(place / "copy").jobs) == 2
        copied(journal, place / "copy")
        assert len(read_state(place / "copy").jobs) == 3


@pytest.mark.parametrize("renames", [0, 1])
@pytest.mark.parametrize("then", ["follow", "unfollow", "open"])
def test_a_crash_while_it_takes_its_place_is_no_matter(
    place: Path, monkeypatch: pytest.MonkeyPatch, renames: int, then: str
) -> None:
    done = list[Path]()
    store = open_store(place / "store")
    path = store.path / "journals" / "copy"
    real = Disk.rename

    def crashing(disk: Disk, old: Path, new: Path) -> None:
        if len(done) == renames:
            raise Crash
        done.append(new)
        real(disk, old, new)

    with open_journal(place / "j") as journal:
        anew = begun_anew(path.parent, journal)
        with monkeypatch.context() as patch, pytest.raises(Crash):
            patch.setattr(Disk, "rename", crashing)
            anew.close()
    if then == "follow":
        store.follow_journal("copy", ORIGIN).close()
    if then == "open":
        with pytest.raises(IsReplica):
            store.journal("copy")
    store.unfollow_journal("copy")
    with store, store.journal("copy") as promoted:
        assert {job.resource for job in promoted.jobs()} == {"old", "new"}


def test_what_was_made_a_journal_of_its_own_is_not_replaced(place: Path) -> None:
    with open_journal(place / "j") as journal:
        anew = begun_anew(place, journal)
        copytree(place / "copy", place / "other")
        anew.close()
    with pytest.raises(NotFound, match="no journal 'nothing'"):
        unfollow(Disk(), place / "nothing")
    copytree(place / "other" / "anew", place / "kept")
    rmtree(place / "other" / "anew")
    unfollow(Disk(), place / "other")
    copytree(place / "kept", place / "other" / "anew")
    with pytest.raises(Refused, match="of its own"):
        follow(Disk(), place / "other", ORIGIN)
    with pytest.raises(Refused, match="of its own"):
        follow(Disk(), place / "other", ORIGIN, anew=True)
    with open_journal(place / "other") as promoted:
        assert [job.resource for job in promoted.jobs()] == ["old"]


class Crash(Exception):
    pass
