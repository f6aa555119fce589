"""What a log says of itself, and of what lies beside it."""

from __future__ import annotations

from pathlib import Path

from headrace.log import Finalize, Log, Settings
from headrace.log.disk import Disk
from headrace.log.positions import PositionFile

from .samples import ORDERS, RING, active_file, orders, segment_files


def test_everything_that_counts_is_told(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(finalize=Finalize(entries=3)), order_by="at") as log:
        for at in range(7):
            log.append(orders(at, at + 1))
        log.sync()
        log.append(orders(7, 8))
        log.trim(4)
        position = PositionFile.open(Disk(), log.path, "us")
        position.save(6)
        position.close()
        (log.path / "notes.txt").touch()
        info = log.info()
        assert info.path == str(log.path)
        assert info.id == log.meta.id
        assert info.schema == ORDERS
        assert info.order_by == "at"
        assert (info.first_index, info.next_index, info.entries) == (4, 8, 4)
        assert info.segments == 2
        assert info.bytes == sum((log.path / name).stat().st_size for name in segment_files(log.path))
        assert info.positions == {"us": 6}
        assert info.foreign == ["notes.txt"]
        assert info.kept == []
        assert info.free_containers == 0


def test_a_reader_in_another_place_says_the_same(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, RING) as log:
        log.append(orders(0, 5))
        log.trim(2)
        log.sync()
        with Log.open(tmp_path / "log", read_only=True) as other:
            assert other.info() == log.info()


def test_without_a_mark_a_reader_looks_for_itself(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(finalize=Finalize(entries=3))) as log:
        for at in range(8):
            log.append(orders(at, at + 1))
    (tmp_path / "log" / "mark").unlink()
    with Log.open(tmp_path / "log", read_only=True) as log:
        assert (log.first_index, log.next_index) == (0, 8)
    assert not (tmp_path / "log" / "mark").exists()


def test_a_trimmed_log_without_a_mark_still_begins_where_it_did(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 8))
        log.trim(5)
    (tmp_path / "log" / "mark").unlink()
    with Log.open(tmp_path / "log") as log:
        assert (log.first_index, log.next_index) == (5, 8)


def test_kept_copies_are_listed(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 3))
    with active_file(tmp_path / "log").open("ab") as file:
        file.write(b"half a frame")
    with Log.open(tmp_path / "log") as log:
        assert log.recovery.cut_bytes == len(b"half a frame")
        (kept,) = log.info().kept
        assert (log.path / "kept" / kept).read_bytes() == b"half a frame"
