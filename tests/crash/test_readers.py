"""Readers that follow a log through all that its writer does to it."""

from __future__ import annotations

import pytest

from headrace.kernel.errors import Trimmed, Truncated
from headrace.log import Batch, Containers, Cursor, Log, Settings, repair

from .disks import BoundedDisk
from .entries import SCHEMA, Entry, batch_of, entries_of
from .judge import lost_indexes, read_all

RINGS = [pytest.param(None, id="files"), pytest.param(Containers(bytes=512 * 1024), id="containers")]


def append(log: Log, generation: int, count: int = 2) -> list[Entry]:
    first = log.next_index
    made = [Entry(first + at, generation, first + at, 50) for at in range(count)]
    log.append(batch_of(made))
    return made


def follower(log: Log, start: int = 0) -> Cursor:
    return Log.open(log.path, read_only=True, disk=BoundedDisk()).cursor(start)


def take(cursor: Cursor) -> list[Entry]:
    """All that is there now."""
    got: list[Entry] = []
    while isinstance(batch := cursor.next(), Batch):
        got += entries_of(batch)
    return got


@pytest.mark.parametrize("containers", RINGS)
def test_a_follower_goes_through_rolls_at_any_moment(place, containers):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        cursors = []
        written: list[Entry] = []
        for generation in range(8):
            cursors.append((follower(log), []))
            written += append(log, generation)
            if generation % 2:
                log.roll()
            for at, (cursor, got) in enumerate(cursors):
                if (generation + at) % 3:  # some are slower than others
                    got += take(cursor)
            if generation % 3 == 2:
                log.roll()
        for cursor, got in cursors:
            assert got + take(cursor) == written
            cursor.close()


@pytest.mark.parametrize("containers", RINGS)
def test_a_slow_follower_is_told_that_what_it_wants_has_been_trimmed(place, containers):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        for generation in range(6):
            append(log, generation)
            log.roll()
        quick, slow, fresh = follower(log), follower(log), follower(log)
        assert len(take(quick)) == 12
        assert slow.next() is not None
        log.trim(8)
        for _ in range(3):  # in a ring the files of the trimmed segments are written again
            append(log, 9, 3)
            log.roll()
        assert [entry.index for entry in take(quick)] == list(range(12, 21))
        got: list[Entry] = []
        with pytest.raises(Trimmed):
            while True:
                batch = slow.next()
                assert batch is not None, "the slow reader came to an end without a word"
                got += entries_of(batch)
        assert all(entry.index < 8 for entry in got), "it skipped what was trimmed"
        assert [entry.index for entry in take(fresh)] == list(range(8, 21))
        for cursor in (quick, slow, fresh):
            cursor.close()


@pytest.mark.parametrize("containers", RINGS)
@pytest.mark.parametrize("cut", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("position", [0, 2, 4, 6, 10])
def test_a_follower_through_a_truncation_never_mixes_what_was_cut_with_what_came_after(
    place, containers, cut, position
):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        before: list[Entry] = []
        for generation in range(5):
            before += append(log, generation)
            if generation == 2:
                log.roll()
        cursor = follower(log)
        got: list[Entry] = []
        while len(got) < position:
            got += entries_of(cursor.next())
        log.truncate(cut)
        after = before[:cut] + append(log, 9, 4) + append(log, 10, 4)
        told = False
        try:
            got += take(cursor)
        except Truncated:
            told = True
        if position > cut:
            assert told, f"the reader had passed {cut} and was not told; it read {got}"
        assert got == after or (told and got == before[: len(got)])
        cursor.close()


@pytest.mark.parametrize("containers", RINGS)
def test_a_follower_goes_on_after_a_repair(place, containers):
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers))
    written = []
    for generation in range(6):
        written += append(log, generation)
        if generation == 2:
            log.roll()
    log.sync()
    cursors = [follower(log) for _ in range(4)]
    got = [[entry for _ in range(count) for entry in entries_of(cursor.next())]
           for count, cursor in enumerate(cursors, 2)]  # fmt: skip
    log.close()
    for file in sorted((place / "log").iterdir()):
        if file.suffix in (".seg", ".active"):
            raw = bytearray(file.read_bytes())
            at = raw.index(written[2 if file.suffix == ".seg" else 8].row()["payload"])
            raw[at] ^= 1
            file.write_bytes(raw)
    lost = lost_indexes(repair(place / "log").found, 12)
    assert lost == {2, 3, 8, 9}
    with Log.open(place / "log") as log:
        written += append(log, 7)
        assert log.verify().ok
        whole = read_all(log).entries
        assert sorted(whole) == sorted(set(range(14)) - lost)
    for cursor, seen in zip(cursors, got, strict=True):
        seen += take(cursor)
        cursor.close()
        indexes = [entry.index for entry in seen]
        assert indexes == sorted(set(indexes))
        assert set(whole) <= set(indexes) <= set(range(14))
        assert all(written[entry.index] == entry for entry in seen)


def test_a_reader_that_never_reads_on_does_not_stop_the_writer(place):
    with Log.open(place / "log", SCHEMA, Settings(containers=Containers(bytes=512 * 1024, limit=3))) as log:
        append(log, 1)
        log.sync()
        cursor = follower(log)
        assert cursor.next() is not None
        for generation in range(2, 20):
            append(log, generation)
            log.roll()
            log.trim(log.next_index)
        assert log.verify().ok
        cursor.close()
