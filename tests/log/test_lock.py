"""The writer's lock: one writer a log, in any process, and a way to take it over."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.kernel.errors import Broken, Fenced, WriterTaken
from headrace.log import Log
from headrace.log.disk import Disk
from headrace.log.lock import WriterLock

from .samples import ORDERS, RING, all_bytes, orders, values


def test_a_second_writer_is_told_who_holds_the_log(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 3))
        log.sync()
        before = all_bytes(tmp_path)
        with pytest.raises(WriterTaken, match=f"process {os.getpid()}"):
            Log.open(tmp_path / "log", ORDERS)
        assert all_bytes(tmp_path) == before
        log.append(orders(3, 4))
    with Log.open(tmp_path / "log") as log:
        assert values(log) == [0, 1, 2, 3]


def test_a_writer_in_another_process_is_kept_out_until_that_one_dies(tmp_path: Path) -> None:
    Log.open(tmp_path / "log", ORDERS).close()
    code = (
        "import sys; from headrace.log import Log; log = Log.open(sys.argv[1]); print('held', flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(WriterTaken, match=f"process {other.pid}"):
            Log.open(tmp_path / "log")
        other.kill()
        other.wait()
    Log.open(tmp_path / "log").close()


def test_only_one_of_many_threads_gets_the_lock(tmp_path: Path) -> None:
    got, refused, begin = [], [], threading.Barrier(8)

    def acquire() -> None:
        begin.wait()
        try:
            got.append(WriterLock.acquire(Disk(), tmp_path))
        except WriterTaken:
            refused.append(1)

    threads = [threading.Thread(target=acquire) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 7)
    got[0].release()
    WriterLock.acquire(Disk(), tmp_path).release()


@pytest.mark.parametrize("settings", [None, RING], ids=["files", "ring"])
def test_a_log_can_be_taken_over_and_the_old_writer_acknowledges_nothing_more(
    tmp_path: Path, settings: object
) -> None:
    old = Log.open(tmp_path / "log", ORDERS, settings)  # type: ignore[arg-type]
    old.append(orders(0, 5))
    old.sync()
    with Log.open(tmp_path / "log", take_over=True) as new:
        new.append(orders(100, 102))
        new.sync()
        for attempt in (
            lambda: old.append(orders(5, 6)),
            lambda: old.append_group([orders(5, 6)], writer="w", sequence=1),
            old.roll,
            lambda: old.trim(2),
            lambda: old.truncate(1),
        ):
            with pytest.raises((Fenced, Broken)):
                attempt()
        with contextlib.suppress(Fenced):
            old.close()
        assert values(new) == [0, 1, 2, 3, 4, 100, 101]
        new.append(orders(102, 103))
    with Log.open(tmp_path / "log") as log:
        assert values(log) == [0, 1, 2, 3, 4, 100, 101, 102]
        assert log.verify().ok


def test_a_log_can_be_taken_over_again_and_again(tmp_path: Path) -> None:
    writers = [Log.open(tmp_path / "log", ORDERS)]
    for number in range(5):
        writers[-1].append(orders(number, number + 1))
        writers[-1].sync()
        epoch = writers[-1].info().epoch
        writers.append(Log.open(tmp_path / "log", take_over=True))
        assert writers[-1].info().epoch > epoch
    for fenced in writers[:-1]:
        with pytest.raises(Fenced):
            fenced.append(orders(9, 10))
        with contextlib.suppress(Fenced):
            fenced.close()
    assert values(writers[-1]) == [0, 1, 2, 3, 4]
    writers[-1].close()


def test_closing_gives_the_log_free_even_while_a_forked_child_lives(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", ORDERS)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)  # until the parent is done
        os._exit(0)
    try:
        log.close()
        Log.open(tmp_path / "log").close()
    finally:
        os.close(write_end)
        os.close(read_end)
        os.waitpid(child, 0)
