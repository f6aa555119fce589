"""A chain of wake-ups: the next leader first, nobody forgotten, and no chain where a link would be slow."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from headrace.kernel.errors import Broken, DiskFailed
from headrace.log import commit as commit_module
from headrace.log.commit import GroupCommit, _Turn


class Waiting:
    """Those who waited for a round, once it is over."""

    def __init__(self, tickets: list[int], outcome: int | Broken) -> None:
        def sync_now() -> int:
            if isinstance(outcome, Broken):
                raise outcome
            return outcome

        self._commit, leader = GroupCommit(sync_now), _Turn(1)
        self.turns = {ticket: _Turn(ticket) for ticket in tickets}
        self._commit._turns = [leader, *self.turns.values()]
        with suppress(Broken):
            self._commit._lead(leader)

    def woken(self) -> list[int]:
        return [ticket for ticket, turn in self.turns.items() if not turn.come.locked()]

    def goes_on(self, ticket: int) -> bool:
        """As the thread that waits would, which is woken; whether it leads."""
        turn = self.turns[ticket]
        assert turn.come.acquire(blocking=False)
        turn.pass_on()
        return not turn.done


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is, a round counts as quick unless a test says otherwise."""
    monkeypatch.setattr(commit_module, "_QUICK_S", 3600.0)


def test_the_next_leader_is_woken_first_and_each_wakes_the_one_behind_it() -> None:
    waiting = Waiting([1, 5, 2, 3, 6], 3)
    for ticket, leads in ((5, True), (1, False), (2, False), (3, False)):
        assert waiting.woken() == [ticket]
        assert waiting.goes_on(ticket) == leads
    assert waiting.woken() == []  # the last one waits for the next round


def test_without_a_next_leader_the_first_who_is_safe_is_woken() -> None:
    waiting = Waiting([1, 2], 9)
    assert waiting.woken() == [1]
    assert not waiting.goes_on(1)
    assert waiting.woken() == [2]


def test_after_a_slow_round_all_are_woken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "_QUICK_S", 0.0)
    waiting = Waiting([1, 2, 3, 4], 2)
    assert waiting.woken() == [1, 2, 3]
    assert [waiting.goes_on(ticket) for ticket in (1, 2, 3)] == [False, False, True]


def test_a_failure_goes_through_the_whole_chain() -> None:
    waiting = Waiting([1, 2], DiskFailed("gone"))
    for ticket in (1, 2):
        assert waiting.woken() == [ticket]
        assert not waiting.goes_on(ticket)
        assert isinstance(waiting.turns[ticket].failure, DiskFailed)


def test_one_that_is_woken_twice_goes_on_once() -> None:
    turn = _Turn(1)
    turn.wake()
    turn.wake()
    assert turn.come.acquire(blocking=False)


def test_many_threads_and_rounds_forget_nobody() -> None:
    lock, appended = threading.Lock(), [0]

    def sync_now() -> int:
        with lock:
            return appended[0]

    commit = GroupCommit(sync_now)

    def work() -> None:
        for _ in range(200):
            with lock:
                appended[0] += 1
                ticket = appended[0]
            commit.sync(ticket)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert commit._turns == []
    assert commit._durable == 3200
