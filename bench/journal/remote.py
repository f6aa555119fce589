"""Over loopback: a server process and one blocking client, beside beanstalkd and Redis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.journal.data import GROUP, groups, pages
from bench.journal.queues import BeanstalkQueue, HeadraceQueue, Queue, RedisQueue
from bench.measure import Aim, Figure, Run, Table, best, timed
from bench.servers import beanstalkd, headrace_server, installed, redis_server, version_of
from headrace.journal import JournalSettings


@dataclass(frozen=True, slots=True)
class Safety:
    """When a request is safe, in the words of each server."""

    what: str
    headrace: JournalSettings
    beanstalkd_ms: int
    redis: str | None
    """None: Redis cannot do that."""


_SAFETY = (
    Safety("sync at every write", JournalSettings(durability="fsync"), 0, "always"),
    Safety("sync every 50 ms", JournalSettings(durability="interval", sync_interval_ms=50), 50, None),
    Safety(
        "sync every second", JournalSettings(durability="interval", sync_interval_ms=1000), 1000, "everysec"
    ),
)
_OURS = "headrace"
_STALK = "beanstalkd"
_PROGRAMS = ("beanstalkd", "redis-server")


def run(run: Run) -> Iterator[Table]:
    singly = Table(
        "The journal over loopback, one request at a time",
        "One blocking client, which waits for each answer. headrace: `headrace journal serve` and "
        "headrace.client.fj. beanstalkd: binlog (-f0, -f50, -f1000), greenstalk; it does not write down that "
        "a job is reserved, headrace and Redis do. Redis: append-only file (always, everysec), redis-py; "
        f"sorted sets and a hash, one round trip a step. {_versions()}.",
    )
    together = Table(
        f"The journal over loopback, {GROUP:,} at once",
        f"headrace: put_batch of {GROUP:,}; next_batch and done_batch. beanstalkd: greenstalk, one at "
        f"a time, as it has nothing else; by hand, {GROUP:,} commands sent before the answers are read. "
        "Redis: a pipeline; a script that leases all, and two commands that remove all.",
    )
    for program in _PROGRAMS:
        if not installed(program):
            run.say(f"{program} is not installed: left out (apt-get install {program})")
    for safety in _SAFETY:
        run.say(f"the journal over loopback, {safety.what}")
        with run.fresh() as path, ExitStack() as stack:
            queues = _queues(path, safety, stack)
            alone, many = _one_at_a_time(run, safety, queues), _together(run, safety, queues)
        singly.figures += _alone_figures(safety, alone)
        together.figures += _together_figures(safety, alone, many)
    yield singly
    yield together


def _versions() -> str:
    return ", ".join(version_of(program) for program in _PROGRAMS if installed(program))


def _queues(path: Path, safety: Safety, stack: ExitStack) -> dict[str, Queue]:
    """A connection to each server that is there; all stop with the stack."""
    enter = stack.enter_context
    queues: dict[str, Queue] = {
        _OURS: HeadraceQueue(enter(headrace_server(path / "headrace", safety.headrace)))
    }
    if installed("beanstalkd"):
        queues[_STALK] = BeanstalkQueue(enter(beanstalkd(path / "beanstalkd", safety.beanstalkd_ms)))
    if installed("redis-server") and safety.redis is not None:
        queues["Redis"] = RedisQueue(enter(redis_server(path / "redis", safety.redis)).port)
    for queue in queues.values():
        stack.callback(queue.close)
    return queues


@dataclass(frozen=True, slots=True)
class _Rates:
    """Jobs a second, by the name of the server."""

    put: Mapping[str, float]
    take: Mapping[str, float]


def _one_at_a_time(run: Run, safety: Safety, queues: Mapping[str, Queue]) -> _Rates:
    synced = safety.beanstalkd_ms == 0
    count = run.scaled(2_000, 200) if synced else run.scaled(10_000, 1_000)

    def put(queue: Queue) -> float:
        resources = pages(count)
        os.sync()
        with timed() as spent:
            for resource in resources:
                queue.put(resource)
        _take_all(queue, count)
        return spent[0]

    def take(queue: Queue) -> float:
        _put_all(queue, count)
        os.sync()
        with timed() as spent:
            for _ in range(count):
                queue.take()
        return spent[0]

    return _Rates(_measured(run, count, queues, put), _measured(run, count, queues, take))


def _together(run: Run, safety: Safety, queues: Mapping[str, Queue]) -> _Rates:
    synced = safety.beanstalkd_ms == 0
    count = run.scaled(10_000, 2_000) if synced else run.scaled(50_000, 5_000)

    def put(queue: Queue) -> float:
        os.sync()
        with timed() as spent:
            _put_all(queue, count)
        _take_all(queue, count)
        return spent[0]

    def take(queue: Queue) -> float:
        _put_all(queue, count)
        os.sync()
        with timed() as spent:
            _take_all(queue, count)
        return spent[0]

    return _Rates(_measured(run, count, queues, put), _measured(run, count, queues, take))


def _measured(
    run: Run, count: int, queues: Mapping[str, Queue], work: Callable[[Queue], float]
) -> dict[str, float]:
    times = best(run.rounds, {name: partial(work, queue) for name, queue in queues.items()})
    return {name: count / spent for name, spent in times.items()}


def _put_all(queue: Queue, count: int) -> None:
    for part in groups(pages(count)):
        queue.put_many(part)


def _take_all(queue: Queue, count: int) -> None:
    for _ in range(count // GROUP):
        queue.take_many(GROUP)
    if count % GROUP:
        queue.take_many(count % GROUP)


def _alone_figures(safety: Safety, rates: _Rates) -> Iterator[Figure]:
    for what, rate in (("put", rates.put), ("next + done", rates.take)):
        name = f"{what}, {safety.what}"
        if len(rate) == 1:
            yield Figure(name, rate[_OURS], "jobs/s")
        for beside in (each for each in rate if each != _OURS):
            aim = Aim(ratio=1) if beside == _STALK else None
            yield Figure(name, rate[_OURS], "jobs/s", beside, rate[beside], aim)


def _together_figures(safety: Safety, alone: _Rates, many: _Rates) -> Iterator[Figure]:
    for what, one, rate in (("put", alone.put, many.put), ("next + done", alone.take, many.take)):
        name = f"{what}, {safety.what}"
        if len(rate) == 1:
            yield Figure(name, rate[_OURS], "jobs/s")
        if _STALK in one:
            yield Figure(name, rate[_OURS], "jobs/s", "beanstalkd, greenstalk", one[_STALK], Aim(ratio=5))
            yield Figure(name, rate[_OURS], "jobs/s", "beanstalkd, by hand", rate[_STALK])
        if "Redis" in rate:
            yield Figure(name, rate[_OURS], "jobs/s", "Redis", rate["Redis"])
