"""The format of journals, version 1, kept for ever: what the first headrace wrote is read exactly.

`journal_v1/` was made once by `make_journal_v1.py`. If a test here fails, the code is wrong, not the file.
"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import msgspec
import pytest

from headrace.journal import Journal, open_journal
from headrace.journal.events import SCHEMA, Event, Kind, from_batch
from headrace.journal.reading import read_events
from headrace.kernel.clock import ManualClock
from headrace.log.disk import Disk
from headrace.log.tail import TAIL_FILES, Tail, read_tail

from .make_journal_v1 import START_US, make

GOLDEN = Path(__file__).parent / "journal_v1"
NOW_US = START_US + 4_000_000
HOUR_US = 3_600_000_000

RECORD = bytes.fromhex(
    "68727431050000005245dcaa66d1ef860700000000000000060000000000000002000000010000006576656e74"
)
"""Events 7 and 8 of the first opening, with the payload "event"; everything below 6 was durable."""
EVENT = bytes.fromhex(
    "dc0010 01 cf00060a24181e4000 07 c40172 c0 a0 cc80 cf00060a24181e4000"
    "c0 c0 cf00060a24181e4000 00 03 c40161 c0 c0"
)
"""A list of its fields, in the order of the columns."""
COLUMNS = (
    "kind int8, at timestamp[us, tz=UTC], id int64, key binary, other binary, domain string, priority int16, "
    "due timestamp[us, tz=UTC], until timestamp[us, tz=UTC], expires timestamp[us, tz=UTC], "
    "stamp timestamp[us, tz=UTC], attempts int32, type int8, value binary, ttl int64, "
    "created timestamp[us, tz=UTC]"
)


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy of the golden journal that may be written to."""
    shutil.copytree(GOLDEN, tmp_path / "v1")
    for packed in (tmp_path / "v1").rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return tmp_path / "v1" / "journal"


def events_of(path: Path) -> list[Event]:
    return [event for _index, batch in read_events(path) for event in from_batch(batch)]


def check(journal: Journal) -> None:
    jobs = sorted((job.resource, job.state, job.priority, job.attempts, job.value) for job in journal.jobs())
    assert jobs == [
        ("https://a.org/dead", "dead", 1, 2, None),
        ("https://a.org/leased", "leased", 2, 1, b"payload"),
        ("https://a.org/leased", "pending", 128, 0, "beside"),
        ("in the tail", "pending", 0, 1, None),
        ("later", "pending", 128, 0, 7),
        ("revived", "pending", 3, 0, None),
    ]
    until = {job.resource: job.until_us for job in journal.jobs() if job.state == "leased"}
    assert until == {"https://a.org/leased": START_US + 2 * HOUR_US}
    values = [(each.key, each.value, each.keys, each.locked) for each in journal.range()]
    assert values == [
        ("a", "text", ("a", "b"), True),
        ("b", "text", ("a", "b"), True),
        ("flag", True, (), False),
        ("renamed", 11, (), False),
    ]
    assert journal.get("a").expires_us == START_US + 1_000_000 + 2 * HOUR_US
    assert not journal.set("gone", 1, timestamp_us=START_US + 999_999)


def test_a_journal_of_the_first_headrace_is_opened_with_all_that_was_acknowledged(golden: Path) -> None:
    with open_journal(golden, clock=ManualClock(NOW_US)) as journal:
        check(journal)
    with open_journal(golden, clock=ManualClock(NOW_US)) as journal:
        check(journal)


def test_it_holds_every_kind_of_event(golden: Path) -> None:
    assert {Kind(event.kind) for event in events_of(golden)} == set(Kind)


def test_todays_headrace_writes_the_same_events_and_the_same_tail(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    again = make(tmp_path / "again")
    assert events_of(again) == events_of(golden)
    for name in [*TAIL_FILES, "log/positions/state"]:
        assert (again / name).read_bytes() == (golden / name).read_bytes(), name


def test_a_record_of_the_tail_byte_for_byte(tmp_path: Path) -> None:
    tail = Tail.open(Disk(), tmp_path, 0x1122334455667788)
    tail.write(b"event", 7, 2, 6)
    tail.close()
    assert (tmp_path / TAIL_FILES[0]).read_bytes()[: len(RECORD)].hex() == RECORD.hex()
    assert (tmp_path / TAIL_FILES[0]).read_bytes().rstrip(b"\0") == RECORD
    (found,) = read_tail(Disk(), tmp_path, 0x1122334455667788, 7)
    assert (found.index, found.durable, found.count, found.payload) == (7, 6, 2, b"event")


def test_an_event_in_the_tail_byte_for_byte() -> None:
    event = Event(
        Kind.PUT, START_US, 7, b"r", None, "", 128, START_US, stamp=START_US, attempts=0, type=3, value=b"a"
    )
    assert msgspec.msgpack.encode(event).hex() == EVENT.hex()
    assert msgspec.msgpack.decode(EVENT, type=Event) == event


def test_the_columns_and_the_numbers_of_the_kinds_never_change() -> None:
    assert ", ".join(f"{field.name} {field.type}" for field in SCHEMA) == COLUMNS
    assert {kind.name: kind.value for kind in Kind} == {
        "PUT": 1,
        "TAKE": 2,
        "EXTEND": 3,
        "RETRY": 4,
        "LAPSE": 5,
        "DONE": 6,
        "DROP": 7,
        "DEAD": 8,
        "REVIVE": 9,
        "HELD": 10,
        "GRAVE": 11,
        "SET": 16,
        "LINK": 17,
        "DELETE": 18,
        "ERASE": 19,
        "TOUCH": 20,
        "WORK": 21,
    }
