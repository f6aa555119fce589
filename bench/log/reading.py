"""Reading: records as Python bytes, and batches as Arrow."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

from bench import peers
from bench.log.data import CHUNK_BYTES, POOL, SIZES, fill, pool, said
from bench.measure import Aim, Figure, Run, Table, best, timed
from headrace import reader
from headrace.log import Log

_COUNTS = {20: 1_000_000, 100: 500_000, 1024: 90_000}
_ARROW_COUNTS = {20: 10_000_000, 100: 3_000_000, 1024: 400_000}


def run(run: Run) -> Iterator[Table]:
    run.say("reading records")
    table = Table("Reading records as Python bytes", "All data in the page cache.")
    for size in SIZES:
        table.figures += _records(run, size)
    yield table
    run.say("reading batches")
    table = Table(
        "Reading batches as Arrow",
        "xxh3_64 over the same files, mapped anew and in the page cache: headrace checks every byte, so it "
        "cannot be faster.",
    )
    for size in SIZES:
        table.figures += _batches(run, size)
    yield table


def _iterate(path: Path) -> float:
    with reader(path) as records, timed() as spent:
        for _ in records:
            pass
    return spent[0]


def _one_a_call(path: Path) -> float:
    with reader(path) as records:
        read = records.read
        with timed() as spent:
            while read() is not None:
                pass
    return spent[0]


def _records(run: Run, size: int) -> Iterator[Figure]:
    count = run.scaled(_COUNTS[size], _COUNTS[size] // 9 // POOL * POOL or POOL)
    with run.fresh() as ours, run.fresh() as lmdb, run.fresh() as sqlite:
        fill(ours, size, count)
        peers.lmdb_putmulti(lmdb, pool(size), count, sync=False)
        peers.sqlite_insert_many(sqlite, pool(size), count, synchronous="off")
        contenders: dict[str, Callable[[], float]] = {
            "iterate": lambda: _iterate(ours),
            "read": lambda: _one_a_call(ours),
            "lmdb": lambda: peers.lmdb_iterate(lmdb),
            "lmdb-step": lambda: peers.lmdb_step(lmdb),
            "sqlite": lambda: peers.sqlite_select(sqlite),
        }
        spent = best(run.rounds + 2, contenders)
    ns = {name: seconds / count * 1e9 for name, seconds in spent.items()}
    what, aim = f"for data in reader, {said(size)}", Aim(60) if size == 20 else None
    yield Figure(what, ns["iterate"], "ns", "LMDB cursor in a for", ns["lmdb"], aim)
    yield Figure(what, ns["iterate"], "ns", "SQLite select in a for", ns["sqlite"])
    yield Figure(
        f"reader.read(), {said(size)}", ns["read"], "ns", "LMDB cursor, a call each", ns["lmdb-step"]
    )


def _arrow(path: Path) -> float:
    with Log.open(path, read_only=True) as log, timed() as spent:
        for _ in log.read():
            pass
    return spent[0]


def _sum_files(path: Path) -> float:
    """The checksum of all segments, in pieces, as a program without a log would do it."""
    files = sorted(file for file in path.iterdir() if file.suffix in (".seg", ".active"))
    with timed() as spent:
        for file in files:
            fd = os.open(file, os.O_RDONLY)
            with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as data:
                for at in range(0, len(data), CHUNK_BYTES):
                    xxhash.xxh3_64_intdigest(data[at : at + CHUNK_BYTES])
            os.close(fd)
    return spent[0]


def _batches(run: Run, size: int) -> Iterator[Figure]:
    count = run.scaled(_ARROW_COUNTS[size], _ARROW_COUNTS[size] // 5)
    with run.fresh() as path:
        fill(path, size, count)
        total = sum(file.stat().st_size for file in path.iterdir())
        spent = best(run.rounds + 2, {"ours": lambda: _arrow(path), "sum": lambda: _sum_files(path)})
    rate = {name: total / seconds / 1e9 for name, seconds in spent.items()}
    what = f"Log.read(), {said(size)}, {total / 1e9:.2f} GB"
    yield Figure(what, rate["ours"], "GB/s", "xxh3_64 of the same files", rate["sum"], Aim(ratio=0.6))
