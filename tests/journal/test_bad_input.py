"""Every wrong argument gives one clear error and changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.journal import (
    BadRequest,
    Journal,
    JournalSettings,
    NoSuchKey,
    OutOfRange,
    WrongType,
    open_journal,
)
from headrace.kernel.clock import ManualClock
from headrace.kernel.durations import BadDuration
from headrace.kernel.errors import HeadraceError, TooLarge
from headrace.log.tail import TAIL_BYTES, TAIL_FILES

START_US = 1_700_000_000_000_000
LONG = "x" * 65_536

WRONG: dict[str, tuple[type[HeadraceError], Callable[[Any], object]]] = {
    "an empty resource": (BadRequest, lambda j: j.put("")),
    "a resource that is no text": (BadRequest, lambda j: j.put(b"r")),
    "a resource that is too long": (TooLarge, lambda j: j.put(LONG)),
    "a priority beyond the byte": (BadRequest, lambda j: j.put("r", priority=256)),
    "a negative priority": (BadRequest, lambda j: j.put("r", priority=-1)),
    "a priority that is a truth": (BadRequest, lambda j: j.put("r", priority=True)),
    "half a priority": (BadRequest, lambda j: j.put("r", priority=1.5)),
    "a due time beyond all calendars": (BadRequest, lambda j: j.put("r", due_us=2**70)),
    "a due time beyond 63 bits": (BadRequest, lambda j: j.put("r", due_us=2**63 + 5)),
    "a due time before 1970": (BadRequest, lambda j: j.put("r", due_us=-1)),
    "half a microsecond": (BadRequest, lambda j: j.put("r", due_us=1.5)),
    "a due time in words": (BadRequest, lambda j: j.put("r", due_us="tomorrow")),
    "a delay in other words": (BadDuration, lambda j: j.put("r", after="soon")),
    "a delay into the past": (BadDuration, lambda j: j.put("r", after=-1)),
    "a delay beyond the year 9999": (HeadraceError, lambda j: j.put("r", after="4000000w")),
    "a life beyond the year 9999": (HeadraceError, lambda j: j.put("r", ttl="4000000w")),
    "an endless life": (BadDuration, lambda j: j.put("r", ttl=float("inf"))),
    "a domain that is no text": (BadRequest, lambda j: j.put("r", domain=5)),
    "a domain that is too long": (TooLarge, lambda j: j.put("r", domain=LONG)),
    "a value of no type": (BadRequest, lambda j: j.put("r", value=[1])),
    "a value that is too large": (TooLarge, lambda j: j.put("r", value=bytes(5001))),
    "an integer of 65 bits": (OutOfRange, lambda j: j.put("r", value=2**63)),
    "one text instead of many": (BadRequest, lambda j: j.put_batch("abc")),
    "no list at all": (BadRequest, lambda j: j.put_batch(5)),
    "a batch with one bad resource": (BadRequest, lambda j: j.put_batch(["r", ""])),
    "a batch with one bad value": (TooLarge, lambda j: j.put_batch(["r", "s"], values=[1, bytes(5001)])),
    "a batch with one bad priority": (BadRequest, lambda j: j.put_batch(["r", "s"], priority=[1, 256])),
    "a batch with too few values": (BadRequest, lambda j: j.put_batch(["r", "s"], values=[1])),
    "a batch with too few due times": (BadRequest, lambda j: j.put_batch(["r", "s"], due_us=[1])),
    "a batch of a writer that is no text": (BadRequest, lambda j: j.put_batch(["r"], once=(5, 1))),
    "a batch of a writer that is not UTF-8": (
        HeadraceError,
        lambda j: j.put_batch(["r"], once=("\udcff", 2**63)),
    ),
    "a batch with a sequence in words": (BadRequest, lambda j: j.put_batch(["r"], once=("w", "1"))),
    "a batch with a sequence of 65 bits": (BadRequest, lambda j: j.put_batch(["r"], once=("w", 2**63))),
    "a batch with half of its name": (BadRequest, lambda j: j.put_batch(["r"], once=("w",))),
    "a lease of no time": (BadRequest, lambda j: j.next(lease=0)),
    "a lease beyond the year 9999": (HeadraceError, lambda j: j.next(lease="4000000w")),
    "a lease in other words": (BadDuration, lambda j: j.next(lease="long")),
    "waiting in other words": (BadDuration, lambda j: j.next(wait="long")),
    "a domain to take from that is no text": (BadRequest, lambda j: j.next(5)),
    "fewer jobs than none": (BadRequest, lambda j: j.next_batch(-1)),
    "jobs counted in words": (BadRequest, lambda j: j.next_batch("x")),
    "ids that are no numbers": (BadRequest, lambda j: j.done_batch(["a"])),
    "one id instead of many": (BadRequest, lambda j: j.done_batch(5)),
    "a job that is none": (BadRequest, lambda j: j.done("r")),
    "a failed job that is none": (BadRequest, lambda j: j.fail(None)),
    "a pause in other words": (BadDuration, lambda j: j.fail(1, "soon")),
    "cancelling what is not there": (NoSuchKey, lambda j: j.cancel("not there")),
    "one resource to redrive instead of many": (BadRequest, lambda j: j.redrive("abc")),
    "an empty key": (BadRequest, lambda j: j.set("", 1)),
    "a key that is no text": (BadRequest, lambda j: j.set(5, 1)),
    "a key that is too long": (TooLarge, lambda j: j.set(LONG, 1)),
    "a key of the journal's own": (BadRequest, lambda j: j.set("\0once:w", 1)),
    "a set value of no type": (BadRequest, lambda j: j.set("k", {})),
    "a set value that is too large": (TooLarge, lambda j: j.set("k", bytes(5001))),
    "a timestamp in words": (BadRequest, lambda j: j.set("k", 1, timestamp_us="now")),
    "a timestamp of 65 bits": (BadRequest, lambda j: j.set("k", 1, timestamp_us=2**64)),
    "a negative timestamp": (BadRequest, lambda j: j.set("k", 1, timestamp_us=-1)),
    "a deletion's timestamp in words": (BadRequest, lambda j: j.delete("k", timestamp_us="now")),
    "a value's life beyond the year 9999": (HeadraceError, lambda j: j.set("k", 1, ttl="4000000w")),
    "a value's lease beyond the year 9999": (HeadraceError, lambda j: j.get("k", lease="4000000w")),
    "an empty key to get": (BadRequest, lambda j: j.get("")),
    "adding a text": (WrongType, lambda j: j.add("n", "x")),
    "adding a truth": (WrongType, lambda j: j.add("n", True)),
    "adding to a text": (WrongType, lambda j: j.add("k", 1)),
    "adding too much": (OutOfRange, lambda j: j.add("n", 2**63 - 1)),
    "adding to nothing": (NoSuchKey, lambda j: j.add("not there", 1)),
    "flipping a number": (WrongType, lambda j: j.flip("n")),
    "a size in words": (BadRequest, lambda j: j.resize("k", "3")),
    "half a size": (BadRequest, lambda j: j.resize("k", 2.5)),
    "a negative size": (BadRequest, lambda j: j.resize("k", -1)),
    "a size that is too large": (BadRequest, lambda j: j.resize("k", 5001)),
    "a lock of nobody": (BadRequest, lambda j: j.lock("k", None)),
    "a lock in other words": (BadDuration, lambda j: j.lock("k", "me", "long")),
    "renaming to an empty key": (BadRequest, lambda j: j.rename("k", "")),
    "renaming nothing": (NoSuchKey, lambda j: j.rename("not there", "x")),
    "linking to an empty key": (BadRequest, lambda j: j.link("k", "")),
    "a range of numbers": (BadRequest, lambda j: list(j.range(5))),
    "a range up to a number": (BadRequest, lambda j: list(j.range("a", 5))),
    "a range counted in words": (BadRequest, lambda j: list(j.range(count="x"))),
    "a range of fewer than none": (BadRequest, lambda j: list(j.range(count=-1))),
    "a pattern that is no text": (BadRequest, lambda j: list(j.match(5))),
    "a pattern that is none": (BadRequest, lambda j: list(j.match("("))),
    "a pattern that RE2 does not know": (BadRequest, lambda j: list(j.match("(?=x)"))),
    "a pattern that is not UTF-8": (BadRequest, lambda j: list(j.match("\udcff"))),
    "listening to an empty key": (BadRequest, lambda j: j.listen("", print)),
}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = JournalSettings(value_bytes=5000, durability="os")
    path = tmp_path_factory.mktemp("journals") / "journal"
    with open_journal(path, settings, clock=ManualClock(START_US)) as journal:
        journal.put("waiting", value=1)
        journal.put("taken", priority=1)
        assert journal.next().resource == "taken"
        journal.set("k", "text")
        journal.set("n", 7)
        yield journal


def all_of(journal: Journal) -> object:
    return list(journal.jobs()), list(journal.range()), journal.engine.state.values.deleted


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_told_in_one_sentence_and_changes_nothing(
    journal: Journal, place: Path, mistake: str
) -> None:
    error, call = WRONG[mistake]
    before = repr(all_of(journal))
    with pytest.raises(error) as told:
        call(journal)
    assert str(told.value)
    assert "\n" not in str(told.value).strip()
    assert repr(all_of(journal)) == before
    journal.set("still", "working")
    journal.delete("still", now=True)


REFUSED: dict[str, Callable[[Any], object]] = {
    "a size beyond the limit": lambda j: j.resize("there", 1 << 30),
    "a size for nothing": lambda j: j.resize("not there", 60 << 20),
    "another name for nothing": lambda j: j.rename("not there", "x"),
    "jobs that nobody has": lambda j: j.done_batch(range(100_000)),
}


@pytest.mark.parametrize("wanted", REFUSED)
def test_what_is_refused_reserves_nothing_on_the_disk(place: Path, wanted: str) -> None:
    with open_journal(place / "journal", JournalSettings(durability="os")) as journal:
        journal.set("there", b"v")
        with suppress(BadRequest, NoSuchKey):
            REFUSED[wanted](journal)
        sizes = [(place / "journal" / name).stat().st_size for name in TAIL_FILES]
    assert sizes == [TAIL_BYTES, TAIL_BYTES]


def test_after_all_mistakes_the_journal_can_be_poured_killed_and_opened(
    journal: Journal, place: Path
) -> None:
    for _error, call in WRONG.values():
        with pytest.raises(HeadraceError):
            call(journal)
    before = repr(all_of(journal))
    shutil.copytree(journal.engine.path, place / "killed")
    with open_journal(place / "killed", clock=ManualClock(START_US)) as killed:
        assert repr(all_of(killed)) == before
    journal.engine._ledger.pour()
    assert repr(all_of(journal)) == before


def test_what_is_just_within_the_limits_is_taken(journal: Journal) -> None:
    longest = "x" * 65_535
    journal.put(longest, priority=255, value=bytes(5000), due_us=0)
    journal.cancel(longest)
    journal.set(longest, 2**63 - 1, timestamp_us=0)
    journal.set(longest, -(2**63))
    journal.delete(longest, now=True)
    journal.put("far", due_us=253_402_300_799_999_999)
    assert journal.next_batch(0).num_rows == 0
    journal.cancel("far")
