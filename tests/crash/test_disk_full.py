"""A real file system that is really full."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.kernel.errors import DiskFull
from headrace.log import Containers, Finalize, Log, Settings, repair
from small_disk import small_disk

from .disks import FailingDisk
from .entries import SCHEMA, Entry, batch_of
from .judge import look, read_all
from .scenes import append, as_dict, entries

KIB = 1024


@pytest.fixture
def small(place: Path) -> Iterator[Path]:
    """A file system of 1 MiB with a ballast of 128 KiB in it."""
    with small_disk(place / "small", "1m") as path:
        (path / "ballast").write_bytes(bytes(128 * KIB))
        yield path


def fill(log: Log, entries: dict[int, Entry], size: int) -> None:
    """Append until the disk is full; everything appended before is in `entries`."""
    with pytest.raises(DiskFull):
        while True:
            entry = Entry(log.next_index, 1, log.next_index, size)
            log.append(batch_of([entry]))
            entries[entry.index] = entry
            log.sync()


def use_up(path: Path) -> None:
    """Leave no byte free."""
    with open(path / "filler", "ab", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(KIB))


@pytest.mark.parametrize("size", [300, 9_000, 40_000])
def test_a_log_on_a_full_disk_stays_readable_and_goes_on_when_there_is_room(small, size):
    settings = Settings(finalize=Finalize(bytes=200 * KIB))
    entries: dict[int, Entry] = {}
    log = Log.open(small / "log", SCHEMA, settings)
    fill(log, entries, size)
    for _ in range(3):  # asking again changes nothing
        with pytest.raises(DiskFull):
            log.append(batch_of([Entry(log.next_index, 2, log.next_index, 200_000)]))
    assert read_all(log).entries == entries
    assert log.verify().ok
    seen, report = look(small / "log")
    assert seen.entries == entries
    assert report.ok
    (small / "ballast").unlink()
    for _ in range(2):
        entry = Entry(log.next_index, 3, log.next_index, 1000)
        log.append(batch_of([entry]))
        entries[entry.index] = entry
    log.sync()
    log.trim(1)
    log.close()
    with Log.open(small / "log") as again:
        assert again.recovery.clean
        del entries[0]
        assert read_all(again).entries == entries
        assert again.verify().ok


def test_a_full_ring_of_containers_needs_no_more_room_from_the_disk(small):
    settings = Settings(containers=Containers(bytes=512 * KIB))
    with pytest.raises(DiskFull):
        Log.open(small / "log", SCHEMA, settings)  # two containers do not fit beside the ballast
    (small / "ballast").unlink()
    for name in os.listdir(small / "log"):
        assert not name.endswith(".active"), "the failed opening left a segment"


def test_a_log_that_cannot_be_created_for_want_of_room_can_be_created_later(small):
    use_up(small)
    with pytest.raises(DiskFull):
        Log.open(small / "log", SCHEMA)
    with pytest.raises(DiskFull):
        Log.open(small / "log", SCHEMA)
    (small / "ballast").unlink()
    with Log.open(small / "log", SCHEMA) as log:
        log.append(batch_of([Entry(0, 1, 0, 10)]))
        log.sync()
        assert log.verify().ok


def test_a_log_can_be_closed_and_opened_and_repaired_around_a_full_disk(small):
    entries: dict[int, Entry] = {}
    log = Log.open(small / "log", SCHEMA)
    fill(log, entries, 5000)
    use_up(small)
    log.close()
    with Log.open(small / "log", read_only=True) as reader:
        assert read_all(reader).entries == entries
    with Log.open(small / "log") as again:  # needs no room
        assert again.recovery.clean
        assert read_all(again).entries == entries
    active = next(file for file in (small / "log").iterdir() if file.name.endswith(".active"))
    raw = bytearray(active.read_bytes())
    raw[2000] ^= 1
    active.write_bytes(raw)
    seen, report = look(small / "log")
    assert not report.ok
    with pytest.raises(DiskFull):
        repair(small / "log")
    assert look(small / "log")[0].entries == seen.entries
    (small / "ballast").unlink()
    (small / "filler").unlink(missing_ok=True)
    with pytest.raises(DiskFull):  # the original must be kept, and for that there is still no room
        repair(small / "log")
    assert look(small / "log")[0].entries == seen.entries


def three(log: Log) -> list[pa.RecordBatch]:
    return [batch_of([entry]) for entry in entries(log.next_index, 3)]


def test_of_several_frames_that_a_full_disk_refuses_those_that_were_complete_are_not_cut(place: Path) -> None:
    """A reader may have them mapped, and would die of it."""
    disk = FailingDisk(None, errno.ENOSPC, kinds=["write"], part=0.75)
    with Log.open(place / "log", SCHEMA, Settings(durability="os"), disk=disk) as log:
        made = append(log, 3)
        (active,) = (place / "log").glob("*.active")
        before = active.stat().st_size
        disk.fail_at = disk.count
        with pytest.raises(DiskFull):
            log.append_group(three(log), writer="w", sequence=1)
        disk.heal()
        assert active.stat().st_size > before
        with Log.open(place / "log", read_only=True) as reader:
            assert read_all(reader).entries == as_dict(made)
        made += append(log, 1)
        log.append_group(three(log), writer="w", sequence=1)
    seen, report = look(place / "log")
    assert report.ok
    assert len(seen.entries) == 7
