"""Group commit: nobody is told before its entries are durable, and threads share syncs."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from headrace.kernel.errors import Broken, DiskFailed, Retryable
from headrace.log import Log
from headrace.log import commit as commit_module
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


def test_who_is_interrupted_while_waiting_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    first_runs, go_on = threading.Event(), threading.Event()

    def sync_now() -> int:
        first_runs.set()
        assert go_on.wait(30)
        return 1

    commit = GroupCommit(sync_now)
    leader = threading.Thread(target=commit.sync, args=(1,))
    leader.start()
    assert first_runs.wait(30)
    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "_Turn", _InterruptedTurn)
        with pytest.raises(KeyboardInterrupt):
            commit.sync(2)
    go_on.set()
    leader.join(30)
    assert not leader.is_alive()
    assert commit._turns == []
    assert commit.syncs == 1


class _InterruptedTurn(_Turn):
    def __init__(self, ticket: int) -> None:
        super().__init__(ticket)
        self.come = _Interrupted()  # type: ignore[assignment]


class _Interrupted:
    def acquire(self) -> None:
        raise KeyboardInterrupt

    def locked(self) -> bool:
        return False


def test_an_interrupt_anywhere_lets_those_who_wait_and_those_who_come_go_on() -> None:
    """At each line in turn of whoever leads, while another one waits.

    Not at a `with`: there the interpreter lets no interrupt in between getting the lock and guarding it.
    """
    lines = Path(commit_module.__file__).read_text().splitlines()
    for interrupt_at in range(200):
        first_runs, go_on = threading.Event(), threading.Event()

        def sync_now(first_runs: threading.Event = first_runs, go_on: threading.Event = go_on) -> int:
            first_runs.set()
            assert go_on.wait(30)
            return 1

        commit = GroupCommit(sync_now)
        outcome = _Interrupting(lines, interrupt_at)
        leader = threading.Thread(target=outcome.run, args=(commit,), daemon=True)
        follower = threading.Thread(target=commit.sync, args=(2,), daemon=True)
        leader.start()
        while not first_runs.is_set() and leader.is_alive():
            first_runs.wait(0.001)
        if first_runs.is_set() and leader.is_alive():
            follower.start()
            while len(commit._turns) < 2:
                pass
            commit._sync_now = lambda: 2
        else:
            commit._sync_now = lambda: 2
            follower.start()
        go_on.set()
        for thread in (leader, follower):
            thread.join(10)
            assert not thread.is_alive(), f"interrupted at step {interrupt_at}: {outcome.where}"
        commit.sync(2)
        assert commit._turns == []
        if not outcome.where:
            assert interrupt_at > 20
            return
    raise AssertionError("it never ended")


class _Interrupting:
    """Syncs once, and is interrupted before the n-th line that it comes to."""

    def __init__(self, lines: list[str], at: int) -> None:
        self._lines = lines
        self._left = at
        self.where = ""

    def run(self, commit: GroupCommit) -> None:
        sys.settrace(self._trace)
        try:
            commit.sync(1)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename != commit_module.__file__:
            return None
        line = self._lines[frame.f_lineno - 1].strip()
        if event == "line" and not line.startswith("with ") and not self.where:
            if self._left == 0:
                self.where = line
                raise KeyboardInterrupt
            self._left -= 1
        return self._trace


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
