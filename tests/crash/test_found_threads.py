"""What a review found when several threads use one log, each as the smallest scenario that shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.kernel.errors import Closed, HeadraceError, WriterTaken
from headrace.log import Log, Settings
from headrace.log.disk import File

from .disks import WatchedDisk
from .entries import SCHEMA
from .judge import look
from .scenes import append, as_dict


class Stop:
    """An operation that takes until it is told to go on: its kind, and how the name of its file ends."""

    def __init__(self, kind: str, ending: str) -> None:
        self.what = kind, ending
        self.armed = True
        self.reached, self.go_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        assert self.reached.wait(30)


class StoppingDisk(WatchedDisk):
    """A disk with stops, which notes what is done to files of each ending."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[Stop] = []
        self.done: list[str] = []

    def stop(self, kind: str, ending: str) -> Stop:
        """The next such operation stops."""
        self.stops.append(Stop(kind, ending))
        return self.stops[-1]

    @contextmanager
    def around(self, operation: str, target: File | Path, **details: object) -> Iterator[None]:
        path = str(details.get("new") or (target.path if isinstance(target, File) else target))
        for stop in self.stops:
            kind, ending = stop.what
            if stop.armed and operation == kind and path.endswith(ending):
                stop.armed = False
                stop.reached.set()
                assert stop.go_on.wait(30)
        yield
        self.done.append(f"{operation} {path.rpartition('.')[2]}")


def started(act: Callable[[], object], outcome: list[object]) -> threading.Thread:
    def run() -> None:
        try:
            outcome.append(act())
        except HeadraceError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_sync_that_another_thread_led_while_frames_were_held_back_does_not_count_them(place):
    disk = StoppingDisk()
    log = Log.open(place / "log", SCHEMA, Settings(write_buffers=4), disk=disk)
    stop = disk.stop("sync", ".active")
    append(log, 1)
    first = started(log.sync, [])
    stop.wait()
    append(log, 1)
    second = started(log.sync, [])  # leads the next sync
    while log.commits_per_sync[0] < 2:
        pass
    append(log, 1)  # held back in memory
    stop.go_on.set()
    first.join()
    second.join()
    disk.done.clear()
    log.sync()
    synced = [each for each in disk.done if each in ("write active", "sync active")]
    assert not synced or synced[-1] == "sync active"
    log.close()


def test_what_is_held_back_is_not_called_durable(place):
    log = Log.open(place / "log", SCHEMA, Settings(write_buffers=4))
    made = append(log, 1)
    append(log, 1)
    log._commit.sync(log._appender.tickets)  # as the leader does, for all that is there
    assert log.durable_index == 2
    seen, report = look(place / "log")  # what kill -9 would leave
    assert report.ok
    assert set(seen.entries) == {0, 1}
    assert seen.entries.items() >= as_dict(made).items()
    log.close()


def test_close_waits_for_what_another_thread_has_under_way(place):
    disk = StoppingDisk()
    log = Log.open(place / "log", SCHEMA, disk=disk)
    made = append(log, 3)
    syncing, renaming = disk.stop("sync", ".active"), disk.stop("rename", ".seg")
    outcome: list[object] = []
    closing = started(log.close, outcome)
    syncing.wait()
    rolling = started(log.roll, outcome)  # begins while the log is being closed
    renaming.wait()
    syncing.go_on.set()
    closing.join(0.2)
    with pytest.raises(WriterTaken):  # the lock is not given free under it
        Log.open(place / "log")
    renaming.go_on.set()
    rolling.join()
    closing.join()
    assert outcome == [None, None]
    with Log.open(place / "log") as again:
        assert again.recovery.clean
        later = append(again, 2, 2)
        again.sync()
    seen, report = look(place / "log")
    assert report.ok
    assert seen.entries == as_dict(made, later)


def test_close_waits_for_a_sync_that_another_thread_has_under_way(place):
    disk = StoppingDisk()
    log = Log.open(place / "log", SCHEMA, Settings(durability="os"), disk=disk)
    append(log, 3)
    stop = disk.stop("sync", ".active")
    outcome: list[object] = []
    syncing = started(lambda: log.sync(force=True), outcome)
    stop.wait()
    closing = started(log.close, outcome)
    stop.go_on.set()
    syncing.join()
    closing.join()
    assert outcome == [None, None]


def test_a_sync_that_comes_too_late_for_a_close_says_so(place):
    log = Log.open(place / "log", SCHEMA, Settings(durability="os"))
    append(log, 3)
    appender, written = log._appender, log._appender.written()
    log.close()
    with pytest.raises(Closed):
        appender.sync(written)
    assert appender.failure is None


def test_what_was_appended_while_the_log_was_being_closed_is_written(place):
    disk = StoppingDisk()
    log = Log.open(place / "log", SCHEMA, Settings(write_buffers=4), disk=disk)
    made = append(log, 1)
    stop = disk.stop("sync", ".active")
    closing = started(log.close, [])
    stop.wait()
    made += append(log, 1)  # held back
    stop.go_on.set()
    closing.join()
    seen, report = look(place / "log")
    assert report.ok
    assert seen.entries == as_dict(made)


def test_threads_that_append_until_the_log_is_closed_leave_it_whole(place):
    for round_ in range(10):
        path = place / f"log{round_}"
        log = Log.open(path, SCHEMA, Settings(write_buffers=1 + round_ % 3))
        acknowledged: list[int] = []

        def work(log: Log = log, acknowledged: list[int] = acknowledged) -> None:
            while True:
                with log._lock:
                    made = append(log, 2)
                log.sync()
                acknowledged.append(made[-1].index)
                if made[-1].index % 7 == 0:
                    log.roll()

        outcome: list[object] = []
        threads = [started(work, outcome) for _ in range(3)]
        while len(acknowledged) < 6:
            pass
        log.close()
        for thread in threads:
            thread.join()
        assert [type(each) for each in outcome] == [Closed] * 3
        seen, report = look(path)
        assert report.ok
        assert set(acknowledged) <= set(seen.entries)
        with Log.open(path) as again:
            assert again.recovery.clean
