"""TailProduce when things fail: tasks, workers, whole drivers, disks, producers. The output stays exact."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

import headrace as hr
from headrace.kernel.errors import KeyOrder, SchemaMismatch
from headrace.stream.entry import Entry
from headrace.stream.errors import BadEntry

from .jobs import (
    Fill,
    Fills,
    LastQuote,
    Trade,
    expected_fills,
    fills,
    head_of,
    market,
    publish_market,
    published,
)

CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))
KILLS = 12
PATIENCE_S = 300.0


def with_producer(spark: Any, store: hr.Store, producer: type, **options: Any) -> Any:
    job = fills(spark, store.path, **options)
    job.producer(producer)
    return job


class Flaky(Fills):
    """Fails at a first attempt, takes the worker down at a second one, and is fine then."""

    def on_entry(self, stream: str, entry: Entry, state: LastQuote) -> Any:
        if stream == "trades" and entry.index in (40, 101):
            context = TaskContext.get()
            assert context is not None
            if context.attemptNumber() == 0:
                raise RuntimeError("a first attempt")
            if context.attemptNumber() == 1:
                os._exit(3)
        return super().on_entry(stream, entry, state)


def test_failing_tasks_and_dying_workers_change_nothing(spark: Any, store: hr.Store, place: Path) -> None:
    values = market(160)
    publish_market(store, values, head=100)
    with_producer(spark, store, Flaky, batch_entries=150).run(place / "checkpoint")
    assert published(store, "fills", Fill) == expected_fills(values, 100)


class Raising(Fills):
    def on_entry(self, stream: str, entry: Entry, state: LastQuote) -> Any:
        return super().on_entry(stream, entry, state) if entry.key < 20 else 1 / 0


class Misplaced(Fills):
    def on_entry(self, stream: str, entry: Entry, state: LastQuote) -> Any:
        return Fill(entry.key + (entry.key == 20), "", 0.0)


class Mistyped(Fills):
    def on_entry(self, stream: str, entry: Entry, state: LastQuote) -> Any:
        return Fill(entry.key, "", 0.0) if entry.key < 20 else Trade(entry.key, "A", 1)


class Unstorable(Fills):
    def on_entry(self, stream: str, entry: Entry, state: LastQuote) -> Any:
        state.since = {entry.key}  # type: ignore[assignment]
        return Fill(entry.key, "", 0.0)


def test_a_bad_producer_publishes_nothing_and_a_repaired_one_goes_on(
    spark: Any, store: hr.Store, place: Path
) -> None:
    values, more = market(60), market(60, seed=2, first=16)
    publish_market(store, values, head=16)
    fills(spark, store.path).run(place / "checkpoint")
    before = published(store, "fills", Fill)
    assert before == expected_fills(values, 16)
    publish_market(store, more, head=40)
    with pytest.raises(Exception, match=r"since=.*would come back"):
        with_producer(spark, store, Unstorable).run(place / "checkpoint")
    assert published(store, "fills", Fill) == before
    assert head_of(store, "fills") == 16
    fills(spark, store.path).run(place / "checkpoint")
    both = {name: values[name] + more[name] for name in values}
    assert published(store, "fills", Fill) == expected_fills(both, 40)


@pytest.mark.parametrize(
    ("producer", "kind", "told"),
    [
        (Raising, ZeroDivisionError, "division by zero"),
        (Misplaced, KeyOrder, "order key 21, and was caused at 20"),
        (Mistyped, BadEntry, "Trade"),
        (Unstorable, SchemaMismatch, "since=.*would come back"),
    ],
)
def test_a_bad_producer_is_found_out_without_spark(
    store: hr.Store, producer: type, kind: type[Exception], told: str
) -> None:
    publish_market(store, {"quotes": [], "trades": []}, head=0)
    job = with_producer(None, store, producer)
    with pytest.raises(kind, match=told):
        job.locally(**market(100))


def test_a_lost_checkpoint_is_refused_until_the_job_takes_over(
    spark: Any, store: hr.Store, place: Path
) -> None:
    values, more = market(60), market(60, seed=2, first=16)
    publish_market(store, values, head=16)
    fills(spark, store.path).run(place / "checkpoint")
    before = published(store, "fills", Fill)
    shutil.rmtree(place / "checkpoint")
    publish_market(store, more, head=40)
    with pytest.raises(Exception, match="written by another query"):
        fills(spark, store.path).run(place / "checkpoint")
    assert published(store, "fills", Fill) == before

    shutil.rmtree(place / "checkpoint")
    taking = {"take_over": True, "start_key": head_of(store, "fills"), "window": 16}
    fills(spark, store.path, **taking).run(place / "checkpoint")
    both = {name: values[name] + more[name] for name in values}
    assert published(store, "fills", Fill) == expected_fills(both, 40)


# --- a full disk


@pytest.fixture
def small(place: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    path = place / "small"
    path.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_stops_a_job_that_goes_on_when_there_is_room(
    spark: Any, small: Path, place: Path
) -> None:
    values = market(100)
    with hr.open(small / "data") as store:
        publish_market(store, values, head=40)
        store.stream("fills", Fill, "at").close()
        job = fills(spark, store.path)
        with open(small / "ballast", "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(1024))
        with pytest.raises(Exception, match=r"(?i)disk.* full|no room|no space"):
            job.run(place / "checkpoint")
        assert published(store, "fills", Fill) == []
        (small / "ballast").unlink()
        job.run(place / "checkpoint")
        assert published(store, "fills", Fill) == expected_fills(values, 40)


# --- killed drivers


class Child:
    """A process with all its children: Spark's JVM and the Python workers."""

    def __init__(self, store: Path, checkpoint: Path, batch_entries: int) -> None:
        tests = Path(__file__).parent.parent
        paths = [str(tests), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spark.tail_child", str(store), str(checkpoint), str(batch_entries)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def begin(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        assert self._process.stdout.readline() == b"ready\n"
        self._process.stdin.write(b"begin\n")
        self._process.stdin.flush()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """All of the session at once: the driver, its JVM, and the workers."""
        for each in _session_of(self._process.pid):
            with _gone():
                os.kill(each, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def _session_of(leader: int) -> list[int]:
    found = []
    for each in os.listdir("/proc"):
        if each.isdigit():
            with _gone():
                if os.getsid(int(each)) == leader:
                    found.append(int(each))
    return found


def _gone() -> Any:
    return suppress(ProcessLookupError)


@pytest.mark.skipif(not CAMPAIGN, reason="more than a minute: make campaign runs it")
def test_drivers_killed_at_any_moment_lose_and_double_nothing(
    spark: Any, store: hr.Store, place: Path
) -> None:
    rnd = random.Random(os.environ.get("HEADRACE_CAMPAIGN") or 7)
    values = market(4000)
    publish_market(store, values, head=1000)
    expected = expected_fills(values, 1000)
    store.stream("fills", Fill, "at").close()
    checkpoint = place / "checkpoint"
    children = [Child(store.path, checkpoint, 300)]
    try:
        for number in range(KILLS):
            if number + 1 < KILLS:
                children.append(Child(store.path, checkpoint, rnd.choice([100, 300, 700])))
            _kill_after_some(store, children[number], rnd)
    finally:
        for child in children:
            child.kill()
    assert published(store, "fills", Fill) == expected[: len(published(store, "fills", Fill))]
    fills(spark, store.path).run(checkpoint)
    assert published(store, "fills", Fill) == expected


def _kill_after_some(store: hr.Store, child: Child, rnd: random.Random) -> None:
    """Let it publish a little more than there was, and kill it anywhere in what it does then."""
    child.begin()
    before, deadline = head_of(store, "fills"), time.monotonic() + PATIENCE_S
    while head_of(store, "fills") == before and time.monotonic() < deadline:
        assert child.alive, "the job ended by itself"
        time.sleep(0.01)
    time.sleep(rnd.random() * 2)
    child.kill()
