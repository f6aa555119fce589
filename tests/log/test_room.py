"""Room ahead of appends: zeros that nobody takes for anything else, and blocks that nobody sees."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.crash.disks import FailingDisk

from headrace.kernel.errors import DiskFull, HeadraceError
from headrace.log import Containers, Log, Settings
from headrace.log.disk import Disk, File
from headrace.log.view import RESERVED_BYTES

from .samples import ORDERS, RAW, active_file, blob, orders, values, written_bytes


def size(log: Log) -> int:
    return active_file(log.path).stat().st_size


def test_small_appends_find_room_and_closing_gives_the_rest_back(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 1))
        reserved = size(log)
        for at in range(1, 20):
            log.append(orders(at, at + 1))
            log.sync()
        assert size(log) == reserved
        assert 0 < size(log) - written_bytes(log.path) <= RESERVED_BYTES
        assert log.verify().ok
        with Log.open(tmp_path / "log", read_only=True) as other:
            assert values(other) == list(range(20))
    assert active_file(tmp_path / "log").stat().st_size - written_bytes(tmp_path / "log") < 64
    with Log.open(tmp_path / "log") as log:
        assert values(log) == list(range(20))


@pytest.mark.parametrize(
    "settings", [Settings(durability="os"), Settings(containers=Containers(bytes=512 * 1024))]
)
def test_nothing_is_reserved_where_it_would_not_help(tmp_path: Path, settings: Settings) -> None:
    with Log.open(tmp_path / "log", ORDERS, settings) as log:
        log.append(orders(0, 1))
        before = size(log)
        log.append(orders(1, 2))
        grown = size(log) - before
        assert grown == (0 if settings.containers else written_bytes(log.path) // 64 * 64 + 64 - before)


def test_what_a_crash_leaves_reserved_is_taken_off_and_is_no_loss(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 3))
        log.sync()
        shutil.copytree(tmp_path / "log", tmp_path / "left")
    with Log.open(tmp_path / "left", read_only=True) as log:
        assert log.verify().ok
    with Log.open(tmp_path / "left") as log:
        assert (log.recovery.cut_bytes, log.recovery.kept_copy, log.recovery.damages) == (0, None, ())
        log.append(orders(3, 4))
        assert values(log) == [0, 1, 2, 3]
        log.roll()
        assert log.verify().ok
    (final,) = (tmp_path / "left").glob("*.seg")
    assert final.read_bytes()[-64:-60] == b"hrf1"  # the trailer is the last thing in it


def test_a_torn_append_in_the_reserved_room_is_cut_with_a_kept_copy(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 3))
        log.sync()
        whole = written_bytes(log.path)
        log.append(orders(3, 4))
        shutil.copytree(tmp_path / "log", tmp_path / "left")
    torn = active_file(tmp_path / "left")
    content = bytearray(torn.read_bytes())
    end = written_bytes(tmp_path / "left")
    content[(whole + end) // 2 : end] = bytes(end - (whole + end) // 2)
    torn.write_bytes(content)
    with Log.open(tmp_path / "left") as log:
        assert log.recovery.cut_from_index == 3
        assert log.recovery.kept_copy is not None
        assert values(log) == [0, 1, 2]
        log.append(orders(3, 4))
        assert values(log) == [0, 1, 2, 3]


def test_a_reader_follows_through_reserved_room_large_appends_and_the_end(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW) as log, Log.open(tmp_path / "log", read_only=True) as other:
        cursor, sizes = other.cursor(), [10, 2 << 20, 20, 70_000, 1 << 20, 30, 3 << 20, 40]
        for fill, length in enumerate(sizes):
            log.append(blob(length, fill))
            log.sync()
            batch = cursor.next()
            assert batch.records.column(0).to_pylist() == [bytes([fill]) * length]
            assert cursor.next() is None
        log.close()
        assert cursor.next() is None


class NoRoomAhead(Disk):
    class file_class(File):
        def allocate(self, size: int, start: int = 0) -> None:
            raise HeadraceError("not here")

        def take_blocks(self, size: int, start: int) -> None:
            raise HeadraceError("nor these")


def test_without_it_everything_works_as_well(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, disk=NoRoomAhead()) as log:
        for at in range(5):
            log.append(orders(at, at + 1))
            log.sync()
        assert size(log) - written_bytes(log.path) < 64
        assert values(log) == list(range(5))


def test_without_blocks_everything_works_as_well(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, disk=NoRoomAhead()) as log:
        for fill in range(4):
            log.append(blob(1 << 20, fill))
            log.sync()
        assert [data[0] for data in values(log)] == list(range(4))


class NotesBlocks(FailingDisk):
    """Knows how many blocks the active segment was given beyond its size. (File systems may give more.)"""

    until = 0

    @contextmanager
    def around(self, operation: str, target: File | Path, **details: object) -> Iterator[None]:
        with super().around(operation, target, **details):
            yield
        if operation in ("take_blocks", "truncate"):
            self.until = details["size"]

    def behind(self, log: Log) -> int:
        return max(0, self.until - size(log))


@pytest.mark.parametrize("durability", ["os", "interval", "fsync"])
def test_large_appends_find_blocks_and_closing_gives_them_back(tmp_path: Path, durability: str) -> None:
    disk = NotesBlocks()
    with Log.open(tmp_path / "log", RAW, Settings(durability=durability), disk=disk) as log:
        for fill in range(6):
            log.append(blob(1 << 20, fill))
        assert 1 << 20 < disk.behind(log) < 8 << 20
        assert size(log) - written_bytes(log.path) < 64 + 8  # the file is as large as its frames
        log.sync()
        assert log.verify().ok
        shutil.copytree(tmp_path / "log", tmp_path / "left")
    assert disk.behind(log) == 0
    for path in (tmp_path / "log", tmp_path / "left"):
        with Log.open(path) as log:
            assert log.recovery.cut_bytes == 0
            assert [data[0] for data in values(log)] == list(range(6))


def test_no_more_blocks_are_taken_than_are_written(tmp_path: Path) -> None:
    disk = NotesBlocks()
    with Log.open(tmp_path / "log", RAW, Settings(durability="os"), disk=disk) as log:
        for length in (100, 500_000, 400_000):
            log.append(blob(length))
            assert disk.behind(log) == 0
        for _ in range(12):
            log.append(blob(3 << 20))
            assert disk.behind(log) <= min(size(log), 8 << 20)
        log.roll()
        (final,) = (tmp_path / "log").glob("*.seg")
        assert disk.until == final.stat().st_size  # it was cut there


def test_containers_have_all_their_blocks(tmp_path: Path) -> None:
    disk = FailingDisk(0, kinds=["take_blocks"])
    settings = Settings(containers=Containers(bytes=8 << 20))
    with Log.open(tmp_path / "log", RAW, settings, disk=disk) as log:
        for _ in range(5):
            log.append(blob(1 << 20))
        assert log.next_index == 5
    assert disk.count == 0


def test_a_full_disk_takes_the_blocks_back_and_is_asked_again(tmp_path: Path) -> None:
    disk = NotesBlocks(None, errno.ENOSPC, kinds=["write"], part=0.5)
    with Log.open(tmp_path / "log", RAW, Settings(durability="os"), disk=disk) as log:
        for _ in range(4):
            log.append(blob(1 << 20, 1))
        assert disk.behind(log) > 1 << 20
        disk.fail_at = disk.count
        with pytest.raises(DiskFull):
            log.append(blob(1 << 20, 2))
        assert disk.behind(log) == 0
        log.append(blob(1 << 20, 3))
        assert disk.behind(log) > 1 << 20
        assert [data[0] for data in values(log)] == [1, 1, 1, 1, 3]
