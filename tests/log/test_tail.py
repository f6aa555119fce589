"""The tail: two files in turn, power cuts in the middle, bits that flip, and what earlier uses have left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.crash.disks import FailingDisk, PowerCut, RecordingDisk

from headrace.kernel.errors import Damaged, DiskFull
from headrace.log import tail as tail_module
from headrace.log.disk import Disk
from headrace.log.tail import TAIL_FILES, Record, Tail, read_tail

SALT = 0x1234_5678_9ABC
SMALL = 1024
EXAMPLES = 3000 if os.environ.get("HEADRACE_CAMPAIGN") else 60

quick = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "TAIL_BYTES", SMALL)


@contextmanager
def opened(path: Path, disk: Disk | None = None) -> Iterator[Tail]:
    path.mkdir(exist_ok=True)
    tail = Tail.open(disk or Disk(), path, SALT)
    try:
        yield tail
    finally:
        tail.close()


def found(path: Path, next_index: int = 0) -> list[Record]:
    return read_tail(Disk(), path, SALT, next_index)


def payloads(path: Path, next_index: int = 0) -> list[bytes]:
    return [record.payload for record in found(path, next_index)]


def sync(tail: Tail) -> None:
    tail.sync(tail.unsynced())


def fill(tail: Tail, *sizes: int, index: int = 0, letter: str = "x", synced: bool = True) -> int:
    """Write a record of one event for each size, each synced before the next; the index after them."""
    for size in sizes:
        tail.reserve(size)
        tail.write(letter.encode() * size, index, 1, index if synced else 0)
        if synced:
            tail.sync(tail.unsynced())
        index += 1
    return index


def test_what_is_written_is_read_back_with_its_indexes(place: Path) -> None:
    with opened(place) as tail:
        tail.write(b"three events", 100, 3, 0)
        tail.write(b"", 103, 1, 100)
    assert [(record.index, record.count, record.durable, record.payload) for record in found(place, 100)] == [
        (100, 3, 0, b"three events"),
        (103, 1, 100, b""),
    ]


def test_there_is_nothing_in_a_tail_that_nobody_wrote(place: Path) -> None:
    assert found(place) == []
    with opened(place):
        pass
    assert found(place) == []


def test_what_the_log_has_already_is_left_out(place: Path) -> None:
    with opened(place) as tail:
        fill(tail, 5, 6, 7)
    assert [record.index for record in found(place, 2)] == [2]
    assert found(place, 3) == []


def test_a_record_that_the_log_has_in_part_is_given_whole(place: Path) -> None:
    with opened(place) as tail:
        tail.write(b"four", 0, 4, 0)
    assert [(record.index, record.next_index) for record in found(place, 2)] == [(0, 4)]


def test_both_files_are_one_row(place: Path) -> None:
    with opened(place) as tail:
        index = fill(tail, 10, 20)
        tail.turn()
        fill(tail, 30, 40, index=index)
    assert [len(each) for each in payloads(place)] == [10, 20, 30, 40]


def test_a_file_grows_when_it_must_and_is_small_again_after_its_turn(place: Path) -> None:
    with opened(place) as tail:
        index = fill(tail, 10 * SMALL)
        assert (place / TAIL_FILES[0]).stat().st_size > 10 * SMALL
        tail.turn()
        index = fill(tail, 1, index=index)
        tail.turn()
        fill(tail, 2, index=index)
        assert (place / TAIL_FILES[0]).stat().st_size == SMALL
    assert [len(each) for each in payloads(place, 1)] == [1, 2]


def test_room_that_was_reserved_before_a_crash_is_given_back_when_the_tail_is_opened(place: Path) -> None:
    with opened(place) as tail:
        tail.reserve(10 * SMALL)
    with opened(place):
        assert [(place / name).stat().st_size for name in TAIL_FILES] == [SMALL, SMALL]


def test_stale_records_of_an_earlier_turn_are_never_read(place: Path) -> None:
    with opened(place) as tail:
        index = fill(tail, 10, 10, 10, 10)
        for _ in range(4):
            tail.turn()
            poured, index = index, fill(tail, 10, index=index, letter="n")
            assert payloads(place, poured) == [b"n" * 10]


def test_records_of_a_history_that_was_lost_are_never_read(place: Path) -> None:
    """The power goes: the second record is on the disk, the first is not. Another first one is written."""
    with opened(place) as tail:
        fill(tail, 10, 10, letter="l", synced=False)
    file = place / TAIL_FILES[0]
    raw = bytearray(file.read_bytes())
    raw[0:50] = bytes(50)
    file.write_bytes(raw)
    assert found(place) == []
    with opened(place) as tail:
        fill(tail, 10, letter="n")
    assert payloads(place) == [b"n" * 10]


def test_the_other_file_may_hold_a_history_that_was_lost_too(place: Path) -> None:
    """Without syncs a power cut can lose one file, and leave the other, whose indexes fit what comes next."""
    with opened(place) as tail:
        index = fill(tail, 10, 10, letter="l", synced=False)
        tail.turn()
        fill(tail, 10, index=index, letter="l", synced=False)
    (place / TAIL_FILES[0]).write_bytes(bytes(SMALL))
    assert found(place) == []
    with opened(place) as tail:
        fill(tail, 10, 10, letter="n", synced=False)
    assert payloads(place) == [b"n" * 10, b"n" * 10]


def test_a_history_that_was_lost_stays_lost_when_the_new_one_is_poured(place: Path) -> None:
    with opened(place) as tail:
        index = fill(tail, 10, 10, letter="l", synced=False)
        tail.turn()
        fill(tail, 10, index=index, letter="l", synced=False)
    (place / TAIL_FILES[0]).write_bytes(bytes(SMALL))
    with opened(place) as tail:
        fill(tail, 10, 10, letter="n", synced=False)
    assert found(place, 2) == []


def test_the_tail_of_another_log_is_not_read(place: Path) -> None:
    with opened(place) as tail:
        fill(tail, 10)
    assert read_tail(Disk(), place, SALT + 1, 0) == []


@quick
@given(st.lists(st.integers(0, 90), min_size=1, max_size=8), st.data())
def test_any_cut_of_the_last_record_loses_only_that_one(
    place: Path, sizes: list[int], data: st.DataObject
) -> None:
    shutil.rmtree(place)
    with opened(place) as tail:
        fill(tail, *sizes[:-1])
        before = tail.bytes
        fill(tail, sizes[-1], index=len(sizes) - 1)
        end = tail.bytes
    cut = data.draw(st.integers(before, end - 1))
    file = place / TAIL_FILES[0]
    rest = data.draw(st.sampled_from([b"", bytes(end - cut), b"\xff" * (end - cut)]))
    whole = file.read_bytes()[:end]
    file.write_bytes(whole[:cut] + rest)
    kept = len(sizes) if whole[:cut] + rest == whole else len(sizes) - 1
    assert [len(each) for each in payloads(place)] == sizes[:kept]


@quick
@given(st.lists(st.integers(0, 60), min_size=2, max_size=8), st.integers(0, 7), st.data())
def test_a_flipped_bit_in_what_a_later_record_knows_as_durable_is_damage(
    place: Path, sizes: list[int], turn_after: int, data: st.DataObject
) -> None:
    """Only the last record has no witness: it could be torn, and nobody can tell."""
    shutil.rmtree(place)
    ends = []
    with opened(place) as tail:
        for index, size in enumerate(sizes):
            if index == turn_after:
                tail.turn()
            fill(tail, size, index=index)
            ends.append((TAIL_FILES[0 if index < turn_after else 1], tail.bytes))
    which = data.draw(st.integers(0, len(sizes) - 2))
    name, end = ends[which]
    start = end - sizes[which] - 40
    file = place / name
    raw = bytearray(file.read_bytes())
    raw[data.draw(st.integers(start, end - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(raw)
    with pytest.raises(Damaged):
        found(place)
    with pytest.raises(Damaged):
        found(place, which)
    assert [record.index for record in found(place, which + 1)] == list(range(which + 1, len(sizes)))


def test_a_missing_file_whose_events_were_durable_is_damage(place: Path) -> None:
    with opened(place) as tail:
        index = fill(tail, 10, 10)
        tail.turn()
        fill(tail, 10, index=index)
    (place / TAIL_FILES[0]).unlink()
    with pytest.raises(Damaged, match="0 to 2"):
        found(place)
    assert len(found(place, 2)) == 1


def test_a_full_disk_refuses_room_and_changes_nothing(place: Path) -> None:
    disk = FailingDisk(0, 28, kinds=["allocate"], lasting=True)
    with opened(place, disk) as tail:
        index = fill(tail, 100)
        with pytest.raises(DiskFull):
            tail.reserve(10 * SMALL)
        index = fill(tail, 50, index=index)
        disk.heal()
        fill(tail, 10 * SMALL, index=index)
    assert [len(each) for each in payloads(place)] == [100, 50, 10 * SMALL]


def test_a_write_that_fails_half_way_can_be_tried_again(place: Path) -> None:
    disk = FailingDisk(None, 28, kinds=["write"], part=0.5)
    with opened(place, disk) as tail:
        index = fill(tail, 100)
        disk.fail_at = disk.count
        with pytest.raises(DiskFull):
            fill(tail, 80, index=index)
        assert [len(each) for each in payloads(place)] == [100]
        fill(tail, 90, index=index)
    assert [len(each) for each in payloads(place)] == [100, 90]


# --- power cuts, one after the other


@dataclass
class Life:
    """One opening of the tail: what it writes, and when each of it became safe."""

    number: int
    tail: Tail
    disk: RecordingDisk
    syncs: bool
    first: int
    index: int
    safe: int
    written: list[bytes] = field(default_factory=list)
    moments: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(operations so far, index reached, safe index, where the log ends)."""
    log_end: int = 0
    turned: bool = False

    def note(self) -> None:
        self.moments.append((len(self.disk.journal), self.index, self.safe, self.log_end))

    def write(self, size: int) -> None:
        payload = f"{self.number}:{self.index}:".encode().ljust(size, b".")
        self.tail.reserve(len(payload))
        self.tail.write(payload, self.index, 1, self.safe)
        self.written.append(payload)
        self.index += 1
        self.note()

    def sync(self) -> None:
        if self.syncs:
            self.tail.sync(self.tail.unsynced())
            self.safe = self.index
            self.note()

    def turn(self) -> None:
        """As the journal does: sync, go on in the other file, and pour this one before the next turn."""
        if self.turned:
            self.pour()
        self.sync()
        self.tail.turn()
        self.turned = True
        self.poured = self.index
        self.note()

    def pour(self) -> None:
        if self.turned:
            self.log_end, self.turned = self.poured, False
            self.note()


STEPS = st.lists(
    st.sampled_from(["write", "write", "write 200", "sync", "turn", "pour"]), min_size=1, max_size=25
)
LIVES = st.lists(
    st.tuples(STEPS, st.integers(0, 1 << 30), st.sampled_from(PowerCut.KINDS), st.integers(0, 1 << 30)),
    min_size=1,
    max_size=4,
)


@quick
@given(LIVES, st.booleans())
def test_power_cuts_lose_only_what_was_not_durable_and_bring_nothing_back(
    place: Path, lives: list[tuple[list[str], int, str, int]], syncs: bool
) -> None:
    shutil.rmtree(place)
    path, log_end = place / "0", 0
    path.mkdir(parents=True)
    with opened(path):
        pass
    for number, (steps, moment, kind, seed) in enumerate(lives):
        disk = RecordingDisk(path)
        with opened(path, disk) as tail:
            life = Life(number, tail, disk, syncs, log_end, log_end, log_end, log_end=log_end)
            life.moments.append((0, log_end, log_end, log_end))  # opening clears what is in the log already
            life.note()
            for step in steps:
                name, *size = step.split()
                getattr(life, name)(*map(int, size or (["20"] if name == "write" else [])))
        when = moment % (len(disk.journal) + 1)
        _, _, safe, log_now = [each for each in life.moments if each[0] <= when][-1]
        if not syncs:  # then nothing is promised of the log either
            log_now = life.first + seed % (log_now - life.first + 1)
        left = place / str(number + 1)
        left.mkdir()
        disk.after_power_cut(left, when, PowerCut(kind, seed))
        records = found(left, log_now)
        log_end = records[-1].next_index if records else log_now
        assert [record.payload for record in records] == life.written[
            log_now - life.first : log_end - life.first
        ]
        assert log_end >= safe
        path = left
