"""Lateness: from the moment a job is due, or is put by another, to the return of a `next` that waits.

Beside it stands how late the machine itself is: a thread that sleeps until then, and with fsync also writes
150 bytes and syncs them. On a busy machine that alone is later than the aim.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.journal.data import DOMAIN, pages
from bench.journal.queues import HOST
from bench.measure import Aim, Figure, Run, Table, percentile
from bench.servers import headrace_server
from headrace.client.fj import FjClient, connect
from headrace.journal import Journal, JournalSettings, open_journal
from headrace.log.settings import Durability

_AFTER_MS = (20, 40)
"""Later than a put needs, on a slow disk too."""
_WAIT = "30s"
_BARE_BYTES = 150


def run(run: Run) -> Iterator[Table]:
    count = run.scaled(500, 60)
    table = Table(
        "How late a waiting `next` returns",
        f"{count} jobs, one after the other. Due: put to be due in 20 to 40 ms, and waited for. Woken: put "
        "by another thread (over loopback: another client) and due at once, counted from the beginning of "
        "that put. With fsync, that a job is taken is on the disk before `next` returns (over loopback: only "
        "written). Bare: a thread that sleeps until then; beside embedded with fsync it also writes and "
        f"syncs {_BARE_BYTES} bytes.",
    )
    durabilities: tuple[Durability, ...] = ("interval", "fsync")
    for durability in durabilities:
        settings = JournalSettings(durability=durability)
        run.say(f"how late next is, {durability}")
        asleep = _bare(run, count, synced=False)
        bare = _bare(run, count, synced=True) if durability == "fsync" else asleep
        with run.fresh() as path, open_journal(path, settings) as journal:
            table.figures += _figures(f"embedded, {durability}", journal, journal, count, bare)
        with run.fresh() as path, ExitStack() as stack:
            waiting, putting = _clients(path, settings, stack)
            table.figures += _figures(f"over loopback, {durability}", waiting, putting, count, asleep)
    yield table


def _clients(path: Path, settings: JournalSettings, stack: ExitStack) -> tuple[FjClient, FjClient]:
    port = stack.enter_context(headrace_server(path, settings))
    return stack.enter_context(connect(HOST, port)), stack.enter_context(connect(HOST, port))


def _figures(
    where: str, waiting: Journal | FjClient, putting: Journal | FjClient, count: int, bare_ms: list[float]
) -> Iterator[Figure]:
    late_ms = _due(waiting, count)
    for percent, aim in ((50, None), (99, Aim(value=5))):
        late, bare = percentile(late_ms, percent), percentile(bare_ms, percent)
        yield Figure(f"due, {where}, p{percent}", late, "ms", "bare", bare, aim)
    late_ms = _woken(waiting, putting, count)
    for percent in (50, 99):
        yield Figure(f"woken, {where}, p{percent}", percentile(late_ms, percent), "ms")


def _bare(run: Run, count: int, *, synced: bool) -> list[float]:
    """How late a thread is that only sleeps, or then also writes and syncs."""
    late_ms = []
    chance = random.Random(1)
    with run.fresh() as path, path.open("wb", buffering=0) as file:
        file.write(bytes(count * _BARE_BYTES))
        os.fsync(file)
        for at in range(count):
            after_s = chance.uniform(*_AFTER_MS) / 1000
            due = time.monotonic() + after_s
            time.sleep(after_s)
            if synced:
                os.pwrite(file.fileno(), bytes(_BARE_BYTES), at * _BARE_BYTES)
                os.fdatasync(file)
            late_ms.append((time.monotonic() - due) * 1000)
        path.unlink()
    return late_ms


def _due(jobs: Journal | FjClient, count: int) -> list[float]:
    late_ms = []
    chance = random.Random(1)
    for resource in pages(count):
        due_us = time.time_ns() // 1000 + round(chance.uniform(*_AFTER_MS) * 1000)
        jobs.put(resource, due_us=due_us)
        job = jobs.next(DOMAIN, wait=_WAIT)
        late_ms.append(time.time_ns() / 1e6 - due_us / 1e3)
        assert job
        job.done()
    return late_ms


def _woken(waiting: Journal | FjClient, putting: Journal | FjClient, count: int) -> list[float]:
    began_ns, late_ms = [0], []
    ready = threading.Semaphore(0)

    def put() -> None:
        for resource in pages(count):
            ready.acquire()
            time.sleep(0.01)  # the other one waits by now
            began_ns[0] = time.monotonic_ns()
            putting.put(resource)

    thread = threading.Thread(target=put)
    thread.start()
    for _ in range(count):
        ready.release()
        job = waiting.next(DOMAIN, wait=_WAIT)
        late_ms.append((time.monotonic_ns() - began_ns[0]) / 1e6)
        assert job
        job.done()
    thread.join()
    return late_ms
