"""What peers of FJ could once do to a journal, each kept so that it never comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headrace.journal import BadRequest, Journal, JournalSettings, open_journal
from headrace.journal.events import Event, Kind
from headrace.kernel.clock import ManualClock
from headrace.log.disk import Disk
from headrace.log.tail import Tail
from headrace.server.fj_fields import REPLY_BYTES
from headrace.wire.fj import CURSOR, DATA, LISTEN, OVERWRITE, PERSIST, RANGE, Function
from headrace.wire.fj_many import pack_jobs

from .fj_asked import VALUE_BYTES, Asking

START_US = 1_700_000_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_US)


@pytest.fixture
def journal(place: Path, clock: ManualClock) -> Iterator[Journal]:
    with open_journal(place / "j", clock=clock) as journal:
        yield journal


@pytest.fixture
def ask(journal: Journal) -> Asking:
    return Asking(journal)


# --- types that the log has no number for


@pytest.mark.parametrize("kind", [6, 127, 128, 200, 255])
def test_a_type_that_nobody_knows_is_refused_and_harms_nobody(
    place: Path, journal: Journal, ask: Asking, kind: int
) -> None:
    many = pack_jobs([(b"a", 1, b"x"), (b"b", kind, b"x")])
    with pytest.raises(BadRequest, match=f"no type {kind}"):
        ask(Function.SET, b"k", PERSIST | OVERWRITE, type=kind, value=b"x")
    with pytest.raises(BadRequest, match=f"no type {kind}"):
        ask(Function.SET, b":1:0", PERSIST | RANGE, upper=b"r", type=kind, value=b"x")
    with pytest.raises(BadRequest, match=f"no type {kind}"):
        ask(Function.SET, b":1:0", PERSIST | RANGE, upper=b"", type=1, value=many)
    journal.set("after", 1)
    journal.close()
    with open_journal(place / "j") as again:
        assert [value.key for value in again.range()] == ["after"]
        assert not list(again.jobs())


def test_a_journal_whose_tail_has_a_type_beyond_the_log_opens_with_its_bytes(
    place: Path, journal: Journal
) -> None:
    index, salt = journal.engine.log.next_index, journal.engine.log.meta.salt
    journal.close()
    tail = Tail.open(Disk(), place / "j", salt)
    event = Event(Kind.SET, START_US, key=b"k", stamp=START_US, type=200, value=b"x")
    tail.write(msgspec.msgpack.encode([event]), index, 1, index)
    tail.close()
    with open_journal(place / "j") as again:
        assert again.get("k").value == b"x"


# --- clients whose clock is behind, and requests that come late

BEHIND_US = START_US - 2_000_000


def integer(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def test_a_client_whose_clock_is_behind_sets_what_it_has_added_to(journal: Journal, ask: Asking) -> None:
    for function, kind, before, argument in [
        (Function.ADD, 3, integer(0), {"type": 3, "value": integer(1)}),
        (Function.NOT, 5, b"\0", {}),
        (Function.TRUNCATE, 1, b"abc", {"type": 3, "value": integer(1)}),
    ]:
        key = function.name.encode()
        ask(Function.SET, key, PERSIST, type=kind, value=before, timestamp=BEHIND_US)
        ask(function, key, PERSIST, timestamp=BEHIND_US + 1, **argument)
        assert journal.get(key.decode()).timestamp_us == BEHIND_US + 1
        ask(Function.SET, key, PERSIST | OVERWRITE, type=1, value=b"set", timestamp=BEHIND_US + 2)
        assert journal.get(key.decode()).value == b"set"


@pytest.mark.parametrize("persist", [PERSIST, 0])
def test_a_renamed_key_refuses_only_what_is_older_than_the_renaming(
    place: Path, journal: Journal, ask: Asking, persist: int
) -> None:
    ask(Function.SET, b"a", persist, type=1, value=b"v", timestamp=BEHIND_US)
    ask(Function.RENAME, b"a", PERSIST | RANGE, upper=b"b", timestamp=BEHIND_US + 5)
    ask(Function.SET, b"a", PERSIST | OVERWRITE, type=1, value=b"late", timestamp=BEHIND_US + 4)
    assert journal.get("a") is None
    assert journal.get("b").value == b"v"
    journal.close()
    with open_journal(place / "j") as again:
        assert not again.set("a", "late", timestamp_us=BEHIND_US + 4)
        assert again.set("a", "new", timestamp_us=BEHIND_US + 6)


def test_a_renamed_key_takes_what_is_newer(journal: Journal, ask: Asking) -> None:
    ask(Function.SET, b"a", PERSIST, type=1, value=b"v", timestamp=BEHIND_US)
    ask(Function.RENAME, b"a", PERSIST | RANGE, upper=b"b", timestamp=BEHIND_US + 5)
    ask(Function.SET, b"a", PERSIST | OVERWRITE, type=1, value=b"new", timestamp=BEHIND_US + 6)
    assert journal.get("a").value == b"new"


# --- the journal's own keys

OWN = b"\0once:spark"


@pytest.mark.parametrize(
    ("function", "flags", "fields"),
    [
        (Function.GET, DATA, {}),
        (Function.GET, DATA | LISTEN, {}),
        (Function.SET, PERSIST | OVERWRITE, {"type": 1, "value": b""}),
        (Function.DELETE, PERSIST | OVERWRITE, {}),
        (Function.ADD, PERSIST, {"type": 3, "value": integer(1)}),
        (Function.NOT, PERSIST, {}),
        (Function.TRUNCATE, PERSIST, {"type": 3, "value": integer(1)}),
        (Function.LOCK, 0, {}),
        (Function.UNLOCK, 0, {}),
        (Function.RENAME, PERSIST | RANGE, {"upper": b"mine"}),
        (Function.LINK, PERSIST | RANGE, {"upper": b"mine"}),
    ],
)
def test_no_function_reads_or_changes_the_journals_own_keys(
    journal: Journal, ask: Asking, function: Function, flags: int, fields: dict[str, object]
) -> None:
    journal.put_batch(["r"], once=("spark", 7))
    with pytest.raises(BadRequest, match="journal's own"):
        ask(function, OWN, flags, timestamp=START_US + 10**9, **fields)
    assert not ask.listens_to
    assert journal.put_batch(["r"], once=("spark", 7)) == []
    assert not list(journal.range())


@pytest.mark.parametrize("after", [b"", b"\0", b"\0once:a"])
def test_a_cursor_that_somebody_made_up_shows_no_more_than_others(
    journal: Journal, ask: Asking, after: bytes
) -> None:
    journal.put_batch(["r"], once=("spark", 7))
    journal.set("k", 1)
    made_up = msgspec.msgpack.encode([after, b"", None, None])
    assert [pair.key for pair in ask(Function.GET, made_up, CURSOR).pairs or ()] == [b"k"]


def test_a_job_whose_resource_begins_with_a_zero_byte_can_be_finished_over_fj(
    journal: Journal, ask: Asking
) -> None:
    """Whoever has the journal embedded may put one."""
    journal.put("\0r")
    until = ask(Function.NEXT).timeout
    assert ask(Function.GET, b"\0r").pairs
    ask(Function.DELETE, b"\0r", timeout=until)
    assert not list(journal.jobs())


# --- how much is answered at once


def test_a_range_over_values_that_left_memory_is_answered_in_portions(place: Path) -> None:
    settings = JournalSettings(memory_bytes=1, durability="os")
    with open_journal(place / "small", settings) as journal:
        for number in range(6):
            journal.set(f"k{number}", bytes(REPLY_BYTES // 2))
        journal.engine.pour()
        journal.engine._care()
        assert journal.stats().evicted == 6
        reply = Asking(journal)(Function.GET, b"k", DATA | RANGE, upper=b"l")
        assert len(reply.pairs or ()) == 2
        assert reply.cursor is not None


def test_truncate_makes_no_value_that_the_wire_could_not_bring_back(journal: Journal, ask: Asking) -> None:
    ask(Function.SET, b"k", PERSIST, type=1, value=b"x")
    with pytest.raises(BadRequest, match=str(VALUE_BYTES)):
        ask(Function.TRUNCATE, b"k", PERSIST, type=3, value=integer(VALUE_BYTES + 1))
    assert journal.get("k").value == b"x"
    ask.functions.begin()
    for _ in range(REPLY_BYTES // VALUE_BYTES):
        ask(Function.TRUNCATE, b"k", PERSIST, type=3, value=integer(VALUE_BYTES))
    assert not ask.functions.enough()
    ask(Function.TRUNCATE, b"k", PERSIST, type=3, value=integer(1))
    assert ask.functions.enough(), "what is made counts as what is answered: others have their turn"
