"""kill -9 of the daemon under load from several clients, with an exact account at the end."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import headrace as hr
from client.real_server import Daemon
from headrace.client.fj import FjClient, connect
from headrace.journal.errors import LeaseLost
from headrace.journal.job import Job, Nothing
from headrace.kernel.errors import HeadraceError

ROUNDS = 40 if os.environ.get("HEADRACE_CAMPAIGN") else 2
JOBS = 100


class Account:
    """What clients were told, by resource."""

    def __init__(self) -> None:
        self.put: set[str] = set()
        self.repeated: set[str] = set()
        self.finished: Counter[str] = Counter()
        self.holders: Counter[str] = Counter()
        self.twice: list[str] = []
        self.working = 0
        self.lock = threading.Lock()


def keep_connected(port: int, stop: threading.Event) -> FjClient | None:
    while not stop.is_set():
        try:
            return connect(port=port, timeout=5)
        except HeadraceError:
            time.sleep(0.01)
    return None


def produce(name: str, port: int, account: Account, stop: threading.Event) -> None:
    number = 0
    client = keep_connected(port, stop)
    while client is not None and number < JOBS:
        resource = f"https://example.com/{name}/{number}"
        try:
            client.put(resource)
        except HeadraceError:  # not acknowledged: put again, which changes nothing if it is there still
            account.repeated.add(resource)
            client = keep_connected(port, stop)
            continue
        account.put.add(resource)
        number += 1


def work(port: int, account: Account, stop: threading.Event) -> None:
    client = keep_connected(port, stop)
    while client is not None and not stop.is_set():
        try:
            job = client.next(lease="1h")
        except HeadraceError:
            client = keep_connected(port, stop)
            continue
        if not isinstance(job, Job):
            time.sleep(0.002)
            continue
        with account.lock:
            account.working += 1
            account.holders[job.resource] += 1
            if account.holders[job.resource] > 1:
                account.twice.append(job.resource)
        with account.lock:  # from here on it may be done, put again by who was not answered, and taken again
            account.holders[job.resource] -= 1
        while client is not None:
            try:
                client.done(job)
            except LeaseLost:
                pass  # it was done, and only the answer was lost
            except HeadraceError:
                client = keep_connected(port, stop)
                continue
            with account.lock:
                account.finished[job.resource] += 1
                account.working -= 1
            break


def test_every_acknowledged_job_is_worked_on_and_none_twice_while_leased(place: Path) -> None:
    lot = random.Random()
    daemon = Daemon(place / "store")
    account, stop = Account(), threading.Event()
    producers = [
        threading.Thread(target=produce, args=(str(n), daemon.port, account, stop)) for n in range(3)
    ]
    workers = [threading.Thread(target=work, args=(daemon.port, account, stop)) for _ in range(3)]
    for thread in (*producers, *workers):
        thread.start()
    for _ in range(ROUNDS):
        time.sleep(lot.uniform(0.05, 0.4))
        daemon.kill()
        daemon.start()
    for thread in producers:
        thread.join(120)
    assert len(account.put) == 3 * JOBS
    while account.working or isinstance(rest(daemon.port), Job):
        time.sleep(0.005)
    stop.set()
    for thread in workers:
        thread.join(60)
    daemon.kill()
    assert account.twice == []
    with hr.open(place / "store") as store:
        left = {job.resource: job.state for job in store.journal("pages").jobs()}
    # What is left was leased by an answer that a kill swallowed: it comes back when its lease ends.
    assert set(left.values()) <= {"leased"}
    assert set(account.finished) | set(left) == account.put
    assert not set(account.finished) & set(left) - account.repeated


def rest(port: int) -> Job | Nothing:
    """Whether there is still a job that nobody has: it is given back at once, for the workers."""
    with connect(port=port) as client:
        job = client.next(lease="1h")
        if isinstance(job, Job):
            client.fail(job, retry_in=0)
        return job
