"""Alertness: who is answered at once keeps looking; who is not, or is in the way of others, sleeps."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from headrace.kernel import alertness
from headrace.kernel.alertness import LOOK_S, Alertness, Lookout

QUICK_S, SLOW_S = LOOK_S / 10, LOOK_S * 100


class Times:
    """Clocks that stand still until they are moved."""

    def __init__(self) -> None:
        self.now = self.busy = 100.0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.busy

    def pass_by(self, seconds: float, busy: float = 1.0) -> None:
        self.now += seconds
        self.busy += seconds * busy


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    times = Times()
    monkeypatch.setattr(
        alertness, "time", SimpleNamespace(monotonic=times.monotonic, thread_time=times.thread_time)
    )
    monkeypatch.setattr(alertness, "_one_core", False)
    return times


def waits(alert: Alertness, times: Times, seconds: float, count: int = 1, busy: float = 1.0) -> None:
    """Who waits looks for a while, at most, and then sleeps."""
    for _ in range(count):
        alert.begin()
        times.pass_by(min(seconds, LOOK_S), busy)
        times.pass_by(max(seconds - LOOK_S, 0.0), 0.0)
        alert.end()


def test_who_is_answered_at_once_looks_for_a_bounded_time(times: Times) -> None:
    alert = Alertness()
    waits(alert, times, QUICK_S, 100)
    assert alert.begin() == times.now + LOOK_S


def test_who_is_answered_late_again_and_again_sleeps_and_looks_again_when_answers_are_quick(
    times: Times,
) -> None:
    alert = Alertness()
    waits(alert, times, SLOW_S, 10)
    assert alert.begin() == 0.0
    waits(alert, times, QUICK_S, 100)
    assert alert.begin() > 0.0


def test_one_long_pause_among_quick_answers_does_not_matter(times: Times) -> None:
    alert = Alertness()
    waits(alert, times, QUICK_S, 100)
    waits(alert, times, 3600.0)
    assert alert.begin() > 0.0


def test_who_looked_while_others_had_the_core_sleeps_for_a_while(times: Times) -> None:
    alert = Alertness()
    waits(alert, times, QUICK_S, busy=0.1)
    assert alert.begin() == 0.0
    for _ in range(10):  # asleep: of course others have it
        waits(alert, times, QUICK_S, busy=0.1)
        assert alert.begin() == 0.0
    waits(alert, times, QUICK_S, 10)
    assert alert.begin() > 0.0


def test_on_one_core_nobody_looks(times: Times, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alertness, "_one_core", True)
    assert Alertness().begin() == 0.0


def test_one_thread_looks_and_hears_that_another_would_like_to() -> None:
    lookout = Lookout()
    assert lookout.take()
    assert not lookout.wanted
    found: list[bool] = []
    other = threading.Thread(target=lambda: found.append(lookout.take()))
    other.start()
    other.join()
    assert found == [False]
    assert lookout.wanted
    lookout.leave()
    assert lookout.take()
    assert not lookout.wanted
