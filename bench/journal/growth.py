"""Growth: a journal of a million pending jobs beside one of a thousand, each in a fresh process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import ROOT, Aim, Figure, Run, Table, timed
from headrace.journal import JournalSettings, open_journal

_SMALL = 1_000
_DOMAINS = 100
_PRIORITIES = 8
_LATER = 0.1
"""Of the jobs, how many are due tomorrow only."""
_DAY_US = 24 * 3600 * 1_000_000
_BATCH = 10_000

_OPEN = f"""
import json, sys, time
from headrace.journal import open_journal

def memory(name):
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status[name].split()[0]) * 1024

def typical(domains):
    times = []
    for domain in domains:
        began = time.perf_counter_ns()
        job = journal.next(domain)
        times.append(time.perf_counter_ns() - began)
        assert job, domain
    return sorted(times)[len(times) // 2]

before = memory("VmRSS")
began, worked = time.perf_counter(), time.process_time()
journal = open_journal(sys.argv[1])
opened, worked = time.perf_counter() - began, time.process_time() - worked
resident, peak = memory("VmRSS"), memory("VmHWM")
any_domain = typical([None] * 300)
one_domain = typical([f"site-{{n:02}}.example" for n in range({_DOMAINS})] * 2)
journal.close()
print(json.dumps([opened, worked, before, resident, peak, any_domain, one_domain]))
"""


def run(run: Run) -> Iterator[Table]:
    count = run.scaled(1_000_000, 100_000)
    run.say(f"a journal of {count:,} pending jobs")
    table = Table(
        f"A journal of {count:,} pending jobs",
        f"Addresses of 40 bytes in {_DOMAINS} domains and {_PRIORITIES} priorities, one in ten due tomorrow; "
        "no values. Opened by a fresh process. next: durability os, the median of 300 calls; the smaller "
        "journal in another process, in turns.",
    )
    with run.fresh() as path:
        with timed() as spent:
            _fill(path, count)
        large, small = [], []
        for _ in range(run.rounds):
            large.append(_opened(path))
            with run.fresh() as other:
                _fill(other, _SMALL)
                small.append(_opened(other))
    opened, worked, before, resident, peak, any_domain, one_domain = map(min, zip(*large, strict=True))
    *_, small_any, small_one = map(min, zip(*small, strict=True))
    beside, aim = f"at {_SMALL:,}", Aim(ratio=0.8)
    table.figures += [
        Figure(f"put_batch of {_BATCH:,}, durability os", count / spent[0], "jobs/s"),
        Figure("open it", opened, "s", aim=Aim(value=10)),
        Figure("open it, processor time", worked, "s"),
        Figure("resident memory", resident / 1e6, "MB", "before it is opened", before / 1e6, Aim(value=600)),
        Figure("resident memory, the most while opening", peak / 1e6, "MB"),
        Figure("next, of any domain, p50", any_domain / 1e3, "µs", beside, small_any / 1e3, aim),
        Figure("next, of one domain, p50", one_domain / 1e3, "µs", beside, small_one / 1e3, aim),
    ]
    yield table


def _fill(path: Path, count: int) -> None:
    chance = random.Random(1)
    now_us = time.time_ns() // 1000
    with open_journal(path, JournalSettings(durability="os")) as journal:
        for at in range(0, count, _BATCH):
            numbers = range(at, min(at + _BATCH, count))
            journal.put_batch(
                [f"https://site-{n % _DOMAINS:02}.example/pages/{n:09}" for n in numbers],
                priority=[chance.randrange(_PRIORITIES) for _ in numbers],
                due_us=[now_us + (_DAY_US if chance.random() < _LATER else n - count) for n in numbers],
            )


def _opened(path: Path) -> list[float]:
    """What a fresh process found: see _OPEN."""
    command = [sys.executable, "-c", _OPEN, str(path)]
    said = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True).stdout
    figures: list[float] = json.loads(said)
    return figures
