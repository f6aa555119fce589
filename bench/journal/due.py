"""Lateness: from the moment a job is due, or is put by another, to the return of a `next` that waits."""

from __future__ import annotations

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


def run(run: Run) -> Iterator[Table]:
    count = run.scaled(500, 60)
    table = Table(
        "How late a waiting `next` returns",
        f"{count} jobs, one after the other. Due: put to be due in 20 to 40 ms, and waited for. Woken: put "
        "by another thread (over loopback: another client) and due at once, counted from the beginning of "
        "that put. With fsync, that a job is taken is on the disk before `next` returns.",
    )
    durabilities: tuple[Durability, ...] = ("interval", "fsync")
    for durability in durabilities:
        settings = JournalSettings(durability=durability)
        run.say(f"how late next is, {durability}")
        with run.fresh() as path, open_journal(path, settings) as journal:
            table.figures += _figures(f"embedded, {durability}", journal, journal, count)
        with run.fresh() as path, ExitStack() as stack:
            waiting, putting = _clients(path, settings, stack)
            table.figures += _figures(f"over loopback, {durability}", waiting, putting, count)
    yield table


def _clients(path: Path, settings: JournalSettings, stack: ExitStack) -> tuple[FjClient, FjClient]:
    port = stack.enter_context(headrace_server(path, settings))
    return stack.enter_context(connect(HOST, port)), stack.enter_context(connect(HOST, port))


def _figures(
    where: str, waiting: Journal | FjClient, putting: Journal | FjClient, count: int
) -> Iterator[Figure]:
    for what, late_ms in (("due", _due(waiting, count)), ("woken", _woken(waiting, putting, count))):
        yield Figure(f"{what}, {where}, p50", percentile(late_ms, 50), "ms")
        aim = Aim(value=5) if what == "due" else None
        yield Figure(f"{what}, {where}, p99", percentile(late_ms, 99), "ms", aim=aim)


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
