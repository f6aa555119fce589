"""Durability: one append at a time, each safe before the next, and many threads that share syncs."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from bench.measure import Aim, Figure, Run, Table, percentile, timed
from headrace.log import Containers, Log, Settings
from headrace.log.queue import RAW_SCHEMA

_CONTAINER_BYTES = 16 << 20
_THREADS = 32


def run(run: Run) -> Iterator[Table]:
    run.say("durable appends")
    table = Table(
        "One durable append at a time",
        "append + sync, beside one os.write (in a container: os.pwrite into a preallocated file) of as many "
        "bytes + os.fdatasync. The two take turns, call by call.",
    )
    for containers in (None, Containers(_CONTAINER_BYTES)):
        for size in (20, 4096):
            table.figures += _latency(run, size, containers)
    yield table
    table = Table(f"{_THREADS} threads, each append + sync of one 20-byte record")
    table.figures += _threads(run)
    yield table


def _one(size: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([os.urandom(size)], pa.binary())], schema=RAW_SCHEMA)


def _latency(run: Run, size: int, containers: Containers | None) -> Iterator[Figure]:
    calls = run.scaled(1500, 200)
    settings = Settings(containers=containers)
    with run.fresh() as path, Log.open(path, RAW_SCHEMA, settings) as log:
        records = _one(size)
        frame_bytes = _frame_bytes(path, records)
        bare = _bare(path / "bare", frame_bytes, preallocated=containers is not None)

        def ours() -> None:
            log.append(records)
            log.sync()

        taken: dict[str, list[float]] = {"ours": [], "bare": []}
        for at in range(calls):
            turns = [("ours", ours), ("bare", bare)]
            for name, call in turns if at % 2 else reversed(turns):
                began = time.perf_counter()
                call()
                taken[name].append((time.perf_counter() - began) * 1e6)
    where = ", in containers" if containers else ""
    for percent in (50, 99):
        what = f"append + sync of 1 × {size} bytes{where}, p{percent}"
        values = (percentile(taken[name], percent) for name in ("ours", "bare"))
        beside = f"bare write + fdatasync of {frame_bytes} bytes"
        aim = Aim(ratio=1 / 1.5) if percent == 50 else None
        yield Figure(what, next(values), "µs", beside, next(values), aim)


def _frame_bytes(path: Path, records: pa.RecordBatch) -> int:
    """How much an append of `records` writes, from a log of its own that reserves no room ahead."""
    with Log.open(path.with_name("probe"), RAW_SCHEMA, Settings(durability="os")) as probe:
        sizes = []
        for _ in range(2):
            probe.append(records)
            (active,) = probe.path.glob("*.active")
            sizes.append(active.stat().st_size)
    shutil.rmtree(probe.path)
    return sizes[1] - sizes[0]


def _bare(path: Path, size: int, *, preallocated: bool) -> Callable[[], None]:
    path.mkdir(parents=True)
    data, fd = os.urandom(size), os.open(path / "data", os.O_RDWR | os.O_CREAT, 0o666)
    offset = 0
    if preallocated:
        os.posix_fallocate(fd, 0, _CONTAINER_BYTES)
        os.fsync(fd)

    def call() -> None:
        nonlocal offset
        if preallocated:
            os.pwrite(fd, data, offset)
            offset += size
        else:
            os.write(fd, data)
        os.fdatasync(fd)

    return call


def _threads(run: Run) -> Iterator[Figure]:
    taken = []
    for _ in range(run.scaled(3, 1)):
        alone = _commit(run, 1, run.scaled(1000, 200))
        together = _commit(run, _THREADS, run.scaled(300, 50))
        taken.append((alone, together))
    alone, together = max(taken, key=lambda pair: pair[1][0])
    yield Figure("commits a second", together[0], "commits/s", "1 thread", alone[0])
    yield Figure("commits a sync of the disk", together[1], "commits/sync", "1 thread", alone[1])


def _commit(run: Run, threads: int, each: int) -> tuple[float, float]:
    """Commits a second, and commits for each sync."""
    records = _one(20)
    with run.fresh() as path, Log.open(path, RAW_SCHEMA) as log:
        start = threading.Barrier(threads + 1)

        def work() -> None:
            start.wait()
            for _ in range(each):
                log.append(records)
                log.sync()

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        start.wait()
        with timed() as spent:
            for worker in workers:
                worker.join()
        commits, syncs = log.commits_per_sync
    return commits / spent[0], commits / syncs
