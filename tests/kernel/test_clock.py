"""Time is handed in."""

from __future__ import annotations

import time

from headrace.kernel.clock import ManualClock, SystemClock


def test_a_manual_clock_moves_only_when_told_to() -> None:
    clock = ManualClock(5)
    assert [clock.now_us(), clock.now_us()] == [5, 5]
    clock.advance(1.5)
    assert clock.now_us() == 1_500_005


def test_the_system_clock_counts_microseconds_of_the_unix_epoch() -> None:
    before = time.time_ns() // 1000
    now = SystemClock().now_us()
    assert before <= now <= time.time_ns() // 1000
