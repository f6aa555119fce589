"""Many jobs by one request of FJ: all of it happens, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.journal import Journal, JournalSettings, MemoryFull, open_journal
from headrace.journal.residents import VOLATILE_ROW_BYTES
from headrace.wire.fj import RANGE, Function, Reply
from headrace.wire.fj_many import pack_jobs

from .fj_asked import Asking

FULL = 10 * VOLATILE_ROW_BYTES


def _put_many(journal: Journal, jobs: list[tuple[bytes, bytes]], timeout: int | None = None) -> Reply:
    packed = pack_jobs([(resource, 1, value) for resource, value in jobs])
    return Asking(journal)(
        Function.SET, b":1:0", RANGE, timeout=timeout, count=0, upper=b"", type=1, value=packed
    )


@pytest.mark.parametrize("life_us", [None, 60_000_000])
def test_jobs_in_memory_only_are_put_one_and_all_or_not_at_all(place: Path, life_us: int | None) -> None:
    with open_journal(place / "j", JournalSettings(volatile_bytes=FULL)) as journal:
        end = None if life_us is None else journal.engine.clock.now_us() + life_us
        with pytest.raises(MemoryFull):
            _put_many(journal, [(b"r%d" % n, b"") for n in range(11)], end)
        assert journal.stats().pending == 0
        _put_many(journal, [(b"r%d" % n, b"") for n in range(10)], end)
        assert journal.stats().pending == 10


def test_jobs_in_memory_only_that_are_changed_take_the_room_of_what_they_were(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(volatile_bytes=FULL)) as journal:
        ten = [(b"r%d" % n, b"") for n in range(10)]
        _put_many(journal, ten)
        _put_many(journal, ten + ten)
        with pytest.raises(MemoryFull):
            _put_many(journal, [*ten[1:], (b"r0", b"x")])
        assert journal.stats().pending == 10


def test_jobs_that_are_on_the_disk_already_take_no_room_of_those_in_memory_only(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(volatile_bytes=FULL)) as journal:
        names = [f"r{n}" for n in range(20)]
        journal.put_batch(names)
        _put_many(journal, [(name.encode(), b"") for name in names])
        assert journal.stats().pending == 20
