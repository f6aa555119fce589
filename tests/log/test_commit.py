"""Group commit: nobody is told before its entries are durable, and threads share syncs."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

import pytest

from headrace.kernel.errors import Broken, DiskFailed, Retryable
from headrace.log import Log
from headrace.log.commit import GroupCommit, _Turn

from .samples import ORDERS, orders


def test_those_who_come_while_a_sync_runs_share_the_next_one() -> None:
    appended = threading.Semaphore(0)
    first_runs, go_on = threading.Event(), threading.Event()
    reached = 1

    def sync_now() -> int:
        covers = reached
        if not first_runs.is_set():
            first_runs.set()
            assert go_on.wait(30)
        return covers

    commit = GroupCommit(sync_now)
    leader = threading.Thread(target=commit.sync, args=(1,))
    leader.start()
    assert first_runs.wait(30)
    reached = 10  # nine more are appended while the leader's sync is under way

    def follow(ticket: int) -> None:
        appended.release()
        commit.sync(ticket)

    followers = [threading.Thread(target=follow, args=(ticket,)) for ticket in range(2, 11)]
    for follower in followers:
        follower.start()
    for _ in followers:
        appended.acquire()
    go_on.set()
    for thread in [leader, *followers]:
        thread.join(30)
    assert commit.commits == 10
    assert commit.syncs == 2


def test_a_leader_that_is_interrupted_lets_the_next_one_lead() -> None:
    first_runs, go_on = threading.Event(), threading.Event()
    outcomes: list[BaseException | int] = [KeyboardInterrupt(), 2]

    def sync_now() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, BaseException):
            first_runs.set()
            assert go_on.wait(30)
            raise outcome
        return outcome

    commit = GroupCommit(sync_now)
    interrupted: list[BaseException] = []

    def lead() -> None:
        try:
            commit.sync(1)
        except KeyboardInterrupt as error:
            interrupted.append(error)

    leader, follower = threading.Thread(target=lead), threading.Thread(target=commit.sync, args=(2,))
    leader.start()
    assert first_runs.wait(30)
    follower.start()
    go_on.set()
    for thread in (leader, follower):
        thread.join(30)
        assert not thread.is_alive()
    assert len(interrupted) == 1
    commit.sync(2)
    assert commit.syncs == 2


def test_who_is_interrupted_while_waiting_is_not_waited_for() -> None:
    commit = GroupCommit(lambda: 9)
    turns = [_Turn(1), _Turn(2)]
    commit._leading, commit._waiting = True, deque(turns)
    for turn in turns:
        turn.come = _Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):  # it waits its turn
        commit._waited(turns[1])
    assert list(commit._waiting) == turns[:1]
    turns[0].leads = True  # it was to lead, and nobody else is there
    commit._waiting.clear()
    with pytest.raises(KeyboardInterrupt):
        commit._waited(turns[0])
    commit.sync(3)
    assert commit.syncs == 1


class _Interrupted:
    def acquire(self) -> None:
        raise KeyboardInterrupt


def test_what_is_durable_already_costs_no_sync() -> None:
    commit = GroupCommit(lambda: 5)
    commit.sync(3)
    commit.sync(5)
    assert (commit.commits, commit.syncs) == (2, 1)


def test_a_failed_sync_is_final() -> None:
    outcomes: list[Exception | int] = [DiskFailed("gone"), 100]

    def sync_now() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    commit = GroupCommit(sync_now)
    for _ in range(3):
        with pytest.raises(Broken, match="gone"):
            commit.sync(1)
    assert outcomes == [100]  # never asked again


def test_an_error_that_is_not_the_disks_can_be_tried_again() -> None:
    outcomes: list[Exception | int] = [Retryable("later"), 1]

    def sync_now() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    commit = GroupCommit(sync_now)
    with pytest.raises(Retryable):
        commit.sync(1)
    commit.sync(1)
    assert commit.syncs == 2


def test_many_threads_are_durable_when_told_so_and_share_syncs(tmp_path: Path) -> None:
    threads, each = 8, 25
    wrong: list[str] = []
    begin = threading.Barrier(threads)

    with Log.open(tmp_path / "log", ORDERS) as log:

        def work(number: int) -> None:
            begin.wait()
            for _ in range(each):
                at = log.append(orders(number, number + 1))
                log.sync()
                if log.durable_index <= at:
                    wrong.append(f"{at} was acknowledged at durable index {log.durable_index}")

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        commits, syncs = log.commits_per_sync
        assert wrong == []
        assert commits == threads * each
        assert 1 <= syncs <= commits
        assert log.next_index == log.durable_index == threads * each
        assert log.verify().ok
