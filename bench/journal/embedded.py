"""Embedded: put, next and done in one process, beside the seed's table in SQLite."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from bench.journal.data import DOMAIN, GROUP, groups, pages
from bench.journal.seed_table import SeedTable
from bench.measure import Aim, Figure, Run, Table, best, timed
from headrace.journal import Journal, JournalSettings, open_journal
from headrace.log.settings import Durability

_THREADS = 16
_STEPS = 3
"""Each of put, next and done is safe before the following one begins."""
_BARE_BYTES = 150
"""About what an event takes in the tail, and less than a page of SQLite's."""

Work = Callable[[list[str]], None]


def run(run: Run) -> Iterator[Table]:
    table = Table(
        "The journal, embedded: put + next + done",
        "All jobs are put, then each is taken and done. Every step is a call of its own, and as safe as the "
        "row says when it returns; by batches, every step of 1,000 jobs. SQLite: WAL, the seed's table with "
        "its indexes, a transaction for each step; its threads take turns by a lock. synchronous=NORMAL "
        "syncs when the WAL is copied back, headrace's interval every 50 ms. Bare: three times pwrite of "
        f"{_BARE_BYTES} bytes + fdatasync in a file that is there already.",
    )
    run.say("the journal embedded, one at a time")
    table.figures += _one_at_a_time(run)
    run.say(f"the journal embedded, {_THREADS} threads")
    table.figures += _threads(run)
    run.say("the journal embedded, by batches")
    table.figures += _batches(run)
    yield table


def _one_at_a_time(run: Run) -> Iterator[Figure]:
    count = run.scaled(2_000, 300)
    times = best(
        run.rounds,
        {
            "headrace": lambda: _headrace(run, count, "fsync", _work_singly),
            "SQLite": lambda: _sqlite(run, count, "full", _sqlite_singly),
            "bare": lambda: _bare(run, count),
        },
    )
    rate = {name: count / spent for name, spent in times.items()}
    what = "one at a time, fsync"
    yield Figure(what, rate["headrace"], "jobs/s", "SQLite, synchronous=FULL", rate["SQLite"], Aim(ratio=5))
    yield Figure(what, rate["headrace"], "jobs/s", "bare writes and syncs", rate["bare"])
    count = run.scaled(20_000, 5_000)
    times = best(
        run.rounds,
        {
            "headrace": lambda: _headrace(run, count, "interval", _work_singly),
            "SQLite": lambda: _sqlite(run, count, "normal", _sqlite_singly),
        },
    )
    rate = {name: count / spent for name, spent in times.items()}
    what, beside = "one at a time, interval (50 ms)", "SQLite, synchronous=NORMAL"
    yield Figure(what, rate["headrace"], "jobs/s", beside, rate["SQLite"], Aim(ratio=5))


def _threads(run: Run) -> Iterator[Figure]:
    count = run.scaled(4_800, 1_600)
    times = best(
        run.rounds,
        {
            "headrace": lambda: _headrace(run, count, "fsync", _work_singly, _THREADS),
            "SQLite": lambda: _sqlite(run, count, "full", _sqlite_singly, _THREADS),
        },
    )
    rate = {name: count / spent for name, spent in times.items()}
    what, beside = f"{_THREADS} threads, each one at a time, fsync", "SQLite, synchronous=FULL"
    yield Figure(what, rate["headrace"], "jobs/s", beside, rate["SQLite"], Aim(ratio=5))


def _batches(run: Run) -> Iterator[Figure]:
    count = run.scaled(100_000, 20_000)
    times = best(
        run.rounds,
        {
            "headrace": lambda: _headrace(run, count, "fsync", _work_by_batches),
            "SQLite": lambda: _sqlite(run, count, "full", _sqlite_by_batches),
        },
    )
    rate = {name: count / spent for name, spent in times.items()}
    what, beside = f"batches of {GROUP:,}, fsync", f"SQLite, synchronous=FULL, {GROUP:,} a transaction"
    yield Figure(what, rate["headrace"], "jobs/s", beside, rate["SQLite"], Aim(value=30_000, ratio=5))


def _headrace(
    run: Run, count: int, durability: Durability, work: Callable[[Journal, list[str]], None], threads: int = 1
) -> float:
    settings = JournalSettings(durability=durability)
    with run.fresh() as path, open_journal(path, settings) as journal:
        return _shared_out(partial(work, journal), pages(count), threads)


def _sqlite(
    run: Run, count: int, synchronous: str, work: Callable[[SeedTable, list[str]], None], threads: int = 1
) -> float:
    with run.fresh() as path, closing(SeedTable(path, synchronous)) as table:
        return _shared_out(partial(work, table), pages(count), threads)


def _shared_out(work: Work, resources: list[str], threads: int) -> float:
    """Seconds until the threads have worked on all of them, each on its part."""
    if threads == 1:
        with timed() as spent:
            work(resources)
        return spent[0]
    parts = list(groups(resources, len(resources) // threads))
    workers = [threading.Thread(target=work, args=(part,)) for part in parts]
    with timed() as spent:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return spent[0]


def _work_singly(journal: Journal, resources: list[str]) -> None:
    for resource in resources:
        journal.put(resource)
    for _ in resources:
        job = journal.next(DOMAIN)
        assert job
        job.done()


def _work_by_batches(journal: Journal, resources: list[str]) -> None:
    for part in groups(resources):
        journal.put_batch(part)
    for part in groups(resources):
        taken = journal.next_batch(len(part), DOMAIN)
        assert taken.num_rows == len(part)
        assert not journal.done_batch(taken.column("id"))


def _sqlite_singly(table: SeedTable, resources: list[str]) -> None:
    for resource in resources:
        table.put(resource)
    for _ in resources:
        table.done(table.next())


def _sqlite_by_batches(table: SeedTable, resources: list[str]) -> None:
    for part in groups(resources):
        table.put_batch(part)
    for part in groups(resources):
        ids = table.next_batch(len(part))
        assert len(ids) == len(part)
        table.done_batch(ids)


def _bare(run: Run, count: int) -> float:
    """What the disk alone would need for as many safe steps."""
    data = os.urandom(_BARE_BYTES)
    with run.fresh() as path:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            os.pwrite(fd, bytes(count * _STEPS * _BARE_BYTES), 0)
            os.fsync(fd)
            with timed() as spent:
                for step in range(count * _STEPS):
                    os.pwrite(fd, data, step * _BARE_BYTES)
                    os.fdatasync(fd)
        finally:
            os.close(fd)
            path.unlink()
    return spent[0]
