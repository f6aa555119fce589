"""Positions: two slots written in turn, so that a torn write leaves the one before."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.kernel.errors import BadName, WriterTaken
from headrace.log.disk import Disk
from headrace.log.positions import POSITIONS_DIRECTORY, PositionFile, read_positions, smallest_position


def save(directory: Path, name: str, *indexes: int) -> Path:
    position = PositionFile.open(Disk(), directory, name)
    for index in indexes:
        position.save(index)
    position.close()
    return directory / POSITIONS_DIRECTORY / name


def load(directory: Path, name: str) -> int:
    position = PositionFile.open(Disk(), directory, name)
    position.close()
    return position.index


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=5))
def test_the_last_saved_position_counts(tmp_path: Path, indexes: list[int]) -> None:
    save(tmp_path, "us", *indexes)
    assert load(tmp_path, "us") == indexes[-1]


def test_a_position_may_go_back(tmp_path: Path) -> None:
    save(tmp_path, "us", 9, 4)
    assert load(tmp_path, "us") == 4


def test_a_write_torn_at_any_byte_leaves_the_position_before_or_the_new_one(tmp_path: Path) -> None:
    path = save(tmp_path, "us", 10, 20)
    before = path.read_bytes()
    save(tmp_path, "us", 30)
    after = path.read_bytes()
    changed = [at for at in range(len(after)) if before[at] != after[at]]
    assert changed
    for torn in range(len(after) + 1):
        path.write_bytes(after[:torn] + before[torn:])
        assert load(tmp_path, "us") == (30 if torn > changed[-1] else 20)


def test_a_flipped_bit_in_the_newest_slot_falls_back_to_the_other(tmp_path: Path) -> None:
    path = save(tmp_path, "us", 10, 20)
    raw = path.read_bytes()
    for bit in range(32 * 8):  # the second write went to the first slot
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert load(tmp_path, "us") == 10


def test_a_new_position_is_at_the_beginning(tmp_path: Path) -> None:
    assert load(tmp_path, "new") == 0


def test_a_name_is_one_reader_at_a_time(tmp_path: Path) -> None:
    held = PositionFile.open(Disk(), tmp_path, "us")
    with pytest.raises(WriterTaken, match="'us'"):
        PositionFile.open(Disk(), tmp_path, "us")
    held.close()
    PositionFile.open(Disk(), tmp_path, "us").close()


@pytest.mark.parametrize("name", ["..", "../out", "a/b", "", ".hidden"])
def test_a_name_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    log = tmp_path / "log"
    log.mkdir()
    with pytest.raises(BadName):
        PositionFile.open(Disk(), log, name)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_the_smallest_position_is_what_all_have_passed(tmp_path: Path) -> None:
    assert smallest_position(Disk(), tmp_path) is None
    save(tmp_path, "fast", 90)
    save(tmp_path, "slow", 30)
    assert read_positions(Disk(), tmp_path) == {"fast": 90, "slow": 30}
    assert smallest_position(Disk(), tmp_path) == 30


def test_a_directory_among_the_positions_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path, "us", 5)
    (tmp_path / POSITIONS_DIRECTORY / "other").mkdir()
    assert read_positions(Disk(), tmp_path) == {"us": 5}
