"""Retention: whole segments go, oldest first, and never one before its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.kernel.clock import ManualClock
from headrace.log import Containers, Finalize, Log, Retention, Settings
from headrace.log.disk import Disk
from headrace.log.positions import PositionFile

from .samples import ORDERS, RAW, blob, orders, segment_files, values

FOUR = Finalize(entries=4)


def test_by_age(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000_000)
    wanted = Settings(finalize=FOUR, retention=Retention(age_s=100.0))
    with Log.open(tmp_path / "log", ORDERS, wanted, clock=clock) as log:
        for at in range(8):
            log.append(orders(at, at + 1))
        log.roll()  # 0..3 and 4..7 are finalized at the same time
        clock.advance(100.0)
        log.retain()
        assert log.first_index == 0, "exactly that old is not older"
        clock.advance(0.001)
        log.retain()
        assert log.first_index == 8
        assert values(log) == []
        assert log.append(orders(8, 9)) == 8
    assert len(segment_files(tmp_path / "log")) == 1


def test_age_counts_from_finalizing_and_is_applied_whenever_a_segment_is_finalized(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000_000)
    wanted = Settings(finalize=FOUR, retention=Retention(age_s=100.0))
    with Log.open(tmp_path / "log", ORDERS, wanted, clock=clock) as log:
        for at in range(40):
            log.append(orders(at, at + 1))
            clock.advance(10.0)
        assert log.first_index == 24  # 24..27 were finalized at 280 s, now it is 400 s; last rolled at 360 s
        assert values(log) == list(range(24, 40))


def test_by_entries(tmp_path: Path) -> None:
    wanted = Settings(finalize=FOUR, retention=Retention(entries=10))
    with Log.open(tmp_path / "log", ORDERS, wanted) as log:
        for at in range(50):
            log.append(orders(at, at + 1))
            assert log.next_index - log.first_index >= min(10, log.next_index)
        log.roll()
        assert log.first_index == 40
        assert log.next_index - log.first_index < 10 + 4


def test_by_bytes(tmp_path: Path) -> None:
    wanted = Settings(finalize=FOUR, retention=Retention(bytes=10_000))
    with Log.open(tmp_path / "log", ORDERS, wanted) as log:
        for at in range(100):
            log.append(orders(at, at + 1))
        finals = [path.stat().st_size for path in sorted((tmp_path / "log").glob("*.seg"))]
        assert log.first_index > 0
        assert sum(finals) >= 10_000
        assert sum(finals[1:]) < 10_000, "without the oldest there is less than what must be kept"
        assert values(log) == list(range(log.first_index, 100))


def test_by_what_every_named_reader_has_consumed(tmp_path: Path) -> None:
    wanted = Settings(finalize=FOUR, retention=Retention(consumed=True))
    with Log.open(tmp_path / "log", ORDERS, wanted) as log:
        for at in range(20):
            log.append(orders(at, at + 1))
        log.roll()
        assert log.first_index == 0, "nobody reads it: nothing is consumed"
        for name, index in (("fast", 18), ("slow", 9)):
            position = PositionFile.open(Disk(), log.path, name)
            position.save(index)
            position.close()
        log.retain()
        assert log.first_index == 8


def test_the_first_rule_that_lets_go_wins(tmp_path: Path) -> None:
    wanted = Settings(finalize=FOUR, retention=Retention(entries=5, age_s=1e9, bytes=1 << 40))
    with Log.open(tmp_path / "log", ORDERS, wanted) as log:
        for at in range(20):
            log.append(orders(at, at + 1))
        log.roll()
        assert log.first_index == 12


def test_nothing_goes_by_default(tmp_path: Path) -> None:
    clock = ManualClock(1)
    with Log.open(tmp_path / "log", ORDERS, Settings(finalize=FOUR), clock=clock) as log:
        for at in range(40):
            log.append(orders(at, at + 1))
            clock.advance(1e9)
        log.retain()
        assert values(log) == list(range(40))


@pytest.mark.parametrize("retention", [Retention(entries=0), Retention(bytes=0)])
def test_keeping_nothing_still_keeps_the_active_segment(tmp_path: Path, retention: Retention) -> None:
    clock = ManualClock(1)
    wanted = Settings(finalize=FOUR, retention=retention)
    with Log.open(tmp_path / "log", ORDERS, wanted, clock=clock) as log:
        for at in range(10):
            log.append(orders(at, at + 1))
            clock.advance(1)
        assert values(log)[-1] == 9
        assert log.first_index == 8


def test_a_full_ring_lets_go_what_is_old_enough(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    ring = Settings(
        durability="os",
        containers=Containers(bytes=512 * 1024, limit=3),
        retention=Retention(age_s=60.0),
    )
    with Log.open(tmp_path / "log", RAW, ring, clock=clock) as log:
        for _ in range(12):  # fills most of three containers
            log.append(blob(100_000))
        clock.advance(1000.0)
        for _ in range(12):
            log.append(blob(100_000))
        assert log.first_index > 0
        assert log.verify().ok
