"""Containers: preallocated files used again and again, so that a log whose tail moves never grows."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from headrace.kernel.errors import Fenced, LogFull
from headrace.log import Containers, Log, Settings

from .samples import ORDERS, RAW, RING, all_bytes, blob, orders, raw, segment_files, values

SIZE = 512 * 1024


def ring(limit: int | None = None, initial: int = 2) -> Settings:
    return Settings(durability="os", containers=Containers(bytes=SIZE, initial=initial, limit=limit))


def sizes(directory: Path) -> set[int]:
    return {(directory / name).stat().st_size for name in segment_files(directory)}


@pytest.mark.parametrize("initial", [2, 5])
def test_the_initial_containers_are_made_at_once_and_in_full(tmp_path: Path, initial: int) -> None:
    with Log.open(tmp_path / "log", RAW, ring(initial=initial)) as log:
        assert len(segment_files(log.path)) == initial
        assert sizes(log.path) == {SIZE}
        assert log.info().free_containers == initial - 1
        for name in segment_files(log.path):
            assert (log.path / name).stat().st_blocks * 512 >= SIZE, "room is reserved, not just promised"


def test_a_log_whose_tail_moves_never_grows(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, ring()) as log:
        most = 0
        for at in range(300):
            log.append(blob(20_000, at % 256))
            log.trim(max(0, log.next_index - 10))
            most = max(most, len(segment_files(log.path)))
            assert sizes(log.path) == {SIZE}
        assert most <= 3
        assert [value[0] for value in values(log)] == [at % 256 for at in range(290, 300)]
        assert log.verify().ok
    with Log.open(tmp_path / "log") as log:
        assert log.recovery.clean
        assert [value[0] for value in values(log)] == [at % 256 for at in range(290, 300)]


def test_cutting_and_taking_over_do_not_make_it_grow(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", ORDERS, ring())
    for number in range(10):
        log.append(orders(number, number + 3))
        log.truncate(log.next_index - 2)
        log.append(orders(0, 1))
        log.roll()
        taken = Log.open(tmp_path / "log", take_over=True)
        with contextlib.suppress(Fenced):  # it may say so when it is closed
            log.close()
        log = taken
        log.trim(log.next_index)
    files = segment_files(tmp_path / "log")
    log.close()
    assert len(files) <= 4, files
    assert sizes(tmp_path / "log") == {SIZE}


def test_without_trimming_it_grows_by_whole_containers(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, ring()) as log:
        for at in range(100):
            log.append(blob(20_000, at))
        assert len(segment_files(log.path)) == log.info().segments >= 4
        assert sizes(log.path) == {SIZE}
        assert [value[0] for value in values(log)] == list(range(100))


@pytest.mark.parametrize("last", [*range(1, 700, 48), 5_000, 40_000])
def test_a_full_ring_says_so_and_is_usable_again_after_trim(tmp_path: Path, last: int) -> None:
    """Whatever little room is left when it is full, trimming must find some."""
    with Log.open(tmp_path / "log", RAW, ring(limit=2)) as log:
        for size in (100_000, 8_000, last):
            with pytest.raises(LogFull, match="trim"):
                while True:
                    log.append(blob(size))
        before, index = all_bytes(log.path), log.next_index
        with pytest.raises(LogFull):
            log.append(blob(100_000))
        assert all_bytes(log.path) == before
        assert log.next_index == index
        log.trim(index - 1)
        assert log.append(blob(100_000)) == index
        assert len(segment_files(log.path)) <= 2
        assert log.verify().ok


def test_a_higher_limit_makes_room_too(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, ring(limit=2)) as log:
        with pytest.raises(LogFull):
            while True:
                log.append(blob(100_000))
        count = log.next_index
    with Log.open(tmp_path / "log", settings=ring(limit=3)) as log:
        assert log.append(blob(100_000)) == count


def test_a_tail_that_never_moves_is_visible(tmp_path: Path) -> None:
    """Who pins the ring can be read off: the oldest index stays while containers pile up."""
    with Log.open(tmp_path / "log", RAW, ring()) as log:
        log.append(raw(b"pinned"))
        for _ in range(60):
            log.append(blob(20_000))
        info = log.info()
        assert info.first_index == 0
        assert info.segments >= 3
        assert info.free_containers == 0
        assert info.bytes == SIZE * len(segment_files(log.path))


def test_a_container_full_of_markers_makes_room_for_more(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, ring(), order_by="at") as log:
        for key in range(9_000):  # 64 bytes each: more than one container of them
            log.head(key)
        assert log.append(orders(9_000, 9_001)) == 0
        assert len(segment_files(log.path)) <= 3
        assert log.verify().ok
    with Log.open(tmp_path / "log") as log:
        assert values(log) == [9_000]


def test_what_is_carried_over_never_fills_a_container(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, ring()) as log:
        for number in range(300):
            log.append_group([orders(number, number + 1)], writer=f"w{number}", sequence=1, note="n" * 4000)
        log.roll()
        assert log.append(orders(300, 301)) == 300
        last = log.last_commit("w299")
        assert last is not None
        assert sizes(log.path) == {SIZE}
    with Log.open(tmp_path / "log") as log:
        assert values(log) == list(range(301))


def test_a_used_container_does_not_show_its_earlier_life(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, RING) as log:
        for _ in range(40):
            log.append(blob(30_000, 7))
        log.trim(log.next_index)
        log.roll()
        base = log.next_index
        log.append(raw(b"new"))
        log.sync()
        assert values(log) == [b"new"]
    with Log.open(tmp_path / "log") as log:
        assert log.recovery.clean
        assert values(log) == [b"new"]
        assert log.first_index == base
        assert log.info().kept == []
