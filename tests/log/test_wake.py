"""Waking: followers in any thread and any process learn that a log has moved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.log import Log, Settings, wake

from .samples import ORDERS, orders, values

JOIN_S = 60.0
"""Longer than anything here can take: it ends a test that would hang, and nothing is measured by it."""


@pytest.fixture(params=["inotify", "polling"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of being woken, each with a hub of its own."""
    monkeypatch.setattr(wake, "_hub", None)
    if request.param == "polling":
        monkeypatch.setattr(wake._Inotify, "create", classmethod(lambda cls: None))
    return str(request.param)


class Follower(threading.Thread):
    """Collects what a follower is given until its iterator ends."""

    def __init__(self, log: Log, **how: object) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._how = how
        self.got: list[int] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for batch in self._log.read(follow=True, **self._how):  # type: ignore[arg-type]
                self.got += batch.records.column("at").to_pylist()
        except Exception as error:
            self.error = error

    def finish(self) -> list[int]:
        self.join(JOIN_S)
        assert not self.is_alive(), "the follower was never woken"
        assert self.error is None, self.error
        return self.got


def test_a_follower_is_woken_by_each_append(tmp_path: Path, how: str) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(durability="os")) as log:
        follower = Follower(log, stop=50)
        follower.start()
        for at in range(50):
            log.append(orders(at, at + 1))
        assert follower.finish() == list(range(50))


def test_every_single_append_wakes_a_waiting_follower(tmp_path: Path, how: str) -> None:
    """Each entry is appended only after the one before has been seen: no wake may be missed."""
    with Log.open(tmp_path / "log", ORDERS, Settings(durability="os")) as log:
        reading = log.read(follow=True)
        log.append(orders(0, 1))
        for at in range(40):
            batch = next(reading)
            assert batch.base_index == at
            appending = threading.Thread(target=log.append, args=(orders(at + 1, at + 2),))
            appending.start()
            appending.join()
        reading.close()


def test_closing_the_log_ends_its_followers(tmp_path: Path, how: str) -> None:
    log = Log.open(tmp_path / "log", ORDERS)
    followers = [Follower(log) for _ in range(5)]
    for follower in followers:
        follower.start()
    log.append(orders(0, 3))
    log.close()
    for follower in followers:
        follower.join(JOIN_S)
        assert not follower.is_alive()
        assert follower.error is None, follower.error


def test_a_follower_busy_with_an_item_ends_when_the_log_is_closed(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", ORDERS)
    log.append(orders(0, 3))
    log.append(orders(3, 6))
    reading = log.read(follow=True)
    assert next(reading).base_index == 0
    log.close()
    assert list(reading) == []


def test_two_hundred_followers_in_one_process(tmp_path: Path, how: str) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(durability="os")) as log:
        followers = [Follower(log, stop=10) for _ in range(200)]
        for follower in followers:
            follower.start()
        for at in range(10):
            log.append(orders(at, at + 1))
        for follower in followers:
            assert follower.finish() == list(range(10))


def test_a_follower_of_durable_entries_gets_none_before_its_sync(tmp_path: Path, how: str) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        seen: list[tuple[int, int]] = []

        def follow() -> None:
            for batch in log.read(stop=9, follow=True, durable=True):
                seen.append((batch.next_index, log.durable_index))

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        for at in range(0, 9, 3):
            log.append(orders(at, at + 3))
            assert all(next_index <= at for next_index, _ in seen)
            log.sync()
        follower.join(JOIN_S)
        assert not follower.is_alive()
        assert seen[-1][0] == 9
        assert all(next_index <= durable for next_index, durable in seen)


OTHER = """
import sys
from headrace.log import Log, wake
path, stop, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if how == "polling":
    wake._Inotify.create = classmethod(lambda cls: None)
with Log.open(path, read_only=True) as log:
    print("ready", flush=True)
    for batch in log.read(stop=stop, follow=True):
        for at in batch.records.column("at").to_pylist():
            print(at, flush=True)
"""


@pytest.mark.parametrize("way", ["inotify", "polling"])
def test_a_follower_in_another_process_is_woken(tmp_path: Path, way: str) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 1))
        arguments = [sys.executable, "-c", OTHER, str(tmp_path / "log"), "6", way]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            assert other.stdout.readline() == "0\n"
            for at in range(1, 6):  # each only once the other has told of the one before
                log.append(orders(at, at + 1))
                if at == 3:
                    log.roll()
                assert other.stdout.readline() == f"{at}\n"
            assert other.wait(JOIN_S) == 0


def test_a_forked_child_can_follow(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        parents = Follower(log, stop=3)
        parents.start()
        log.append(orders(0, 1))
        ready_read, ready_write = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with Log.open(tmp_path / "log", read_only=True) as mine:
                    os.write(ready_write, b"x")
                    got = values(mine, 0, 3, follow=True)
                    code = 0 if got == [0, 1, 2] else 2
            finally:
                os._exit(code)
        os.close(ready_write)
        assert os.read(ready_read, 1) == b"x"
        os.close(ready_read)
        log.append(orders(1, 2))
        log.append(orders(2, 3))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert parents.finish() == [0, 1, 2]


def test_a_move_within_one_tick_of_the_clock_is_not_missed_by_polling(tmp_path: Path) -> None:
    """Kernels before 6.13 give all writes within 4 ms the same time of change."""
    path = tmp_path / "mark"
    path.write_bytes(b"one")
    hub = wake._Hub()
    hub._inotify = None
    hub._polled[str(path)] = b""
    assert hub._moved() == [str(path)]
    assert hub._moved() == []
    times = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert hub._moved() == [str(path)]


def test_a_log_whose_mark_was_removed_can_still_be_followed(tmp_path: Path) -> None:
    Log.open(tmp_path / "log", ORDERS).close()
    (tmp_path / "log" / "mark").unlink()
    with Log.open(tmp_path / "log", read_only=True) as reading:
        follower = Follower(reading, stop=2)
        follower.start()
        with Log.open(tmp_path / "log") as log:
            log.append(orders(0, 1))
            log.append(orders(1, 2))
            assert follower.finish() == [0, 1]


def test_a_mark_that_is_replaced_together_with_its_directory_is_watched_on(tmp_path: Path, how: str) -> None:
    """As by a copy that has begun anew."""
    for name in ("log", "anew"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mark").write_bytes(name.encode())
    watch = wake.watch(tmp_path / "log" / "mark")
    with (tmp_path / "log" / "mark").open("rb"):  # by some reader
        (tmp_path / "log").rename(tmp_path / "old")
        (tmp_path / "anew").rename(tmp_path / "log")
        seen = watch.seen()
        shutil.rmtree(tmp_path / "old")
        assert watch.wait(seen, JOIN_S)
        for text in (b"one", b"two"):
            seen = watch.seen()
            (tmp_path / "log" / "mark").write_bytes(text)
            assert watch.wait(seen, JOIN_S)
    watch.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
def test_when_events_were_dropped_everybody_is_woken(tmp_path: Path) -> None:
    inotify = wake._Inotify.create()
    assert inotify is not None
    files = [tmp_path / name for name in ("a", "b", "quiet")]
    for file in files:
        file.write_bytes(b"")
        assert inotify.add(str(file))
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with files[0].open("r+b", buffering=0) as a, files[1].open("r+b", buffering=0) as b:
        for _ in range(most // 2 + 1):  # in turns: equal events that follow one another are one
            a.write(b"1")
            b.write(b"1")
    files[2].write_bytes(b"1")
    woken: set[str] = set()
    while paths := inotify.wait(0):
        woken.update(paths)
    assert woken == {str(file) for file in files}
    files[2].rename(tmp_path / "old")  # it is watched still
    files[2].write_bytes(b"2")
    inotify.wait(0)
    inotify.renew()
    files[2].write_bytes(b"3")
    assert str(files[2]) in inotify.wait(1000)
    os.close(inotify._fd)
