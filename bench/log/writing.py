"""Writing one record a call: what a program does that has one thing to say at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from bench import peers
from bench.log.data import POOL, SIZES, open_writer, pool, said
from bench.measure import Aim, Figure, Run, Table, best, timed

_COUNTS = {20: 500_000, 100: 300_000, 1024: 90_000}
_FSYNC = {
    "LMDB put, synced every 1,000 records (sync=True)": "lmdb",
    "SQLite insert, WAL synced every 1,000 records (FULL)": "sqlite",
}
_OS = {
    "LMDB put, 1,000 a transaction, never synced (sync=False)": "lmdb-os",
    "SQLite insert, WAL, 1,000 a transaction, never synced (OFF)": "sqlite-os",
}


def run(run: Run) -> Iterator[Table]:
    run.say("writing one record a call")
    table = Table(
        "Writing, one record a call",
        "headrace (fsync): synced by itself every 4 MiB or second, and at the end. (os): written to the "
        "kernel then. Time until everything is as durable as the row says.",
    )
    for size in SIZES:
        table.figures += _figures(run, size)
    table.figures += _persist_queue(run)
    yield table


def _headrace(run: Run, records: Sequence[bytes], count: int, durability: str) -> float:
    with run.fresh() as path, open_writer(path, durability) as out:
        write = out.write
        with timed() as spent:
            for _ in range(count // POOL):
                for data in records:
                    write(data)
            out.flush()
    return spent[0]


def _figures(run: Run, size: int) -> Iterator[Figure]:
    records, count = pool(size), run.scaled(_COUNTS[size], _COUNTS[size] // 9 // POOL * POOL or POOL)

    def peer(measure: Callable[..., float], **options: object) -> Callable[[], float]:
        def once() -> float:
            with run.fresh() as path:
                return measure(path, records, count, **options)

        return once

    spent = best(
        run.rounds,
        {
            "fsync": lambda: _headrace(run, records, count, "fsync"),
            "lmdb": peer(peers.lmdb_put, sync=True),
            "sqlite": peer(peers.sqlite_insert),
            "os": lambda: _headrace(run, records, count, "os"),
            "lmdb-os": peer(peers.lmdb_put, sync=False),
            "sqlite-os": peer(peers.sqlite_insert, synchronous="off"),
        },
    )
    ns = {name: seconds / count * 1e9 for name, seconds in spent.items()}
    for durability, beside in (("fsync", _FSYNC), ("os", _OS)):
        for name, key in beside.items():
            aim = Aim(300 if size == 20 else None, 5) if key.startswith("lmdb") else None
            yield Figure(f"write, {said(size)} ({durability})", ns[durability], "ns", name, ns[key], aim)


def _persist_queue(run: Run) -> Iterator[Figure]:
    records, count = pool(20), POOL

    def peer(measure: Callable[..., float]) -> Callable[[], float]:
        def once() -> float:
            with run.fresh() as path:
                return measure(path, records, count)

        return once

    spent = best(
        run.scaled(2, 1),
        {
            "fsync": lambda: _headrace(run, records, count, "fsync"),
            "persist-queue SQLiteQueue, WAL synced every 1,000": peer(peers.persist_sqlite),
            "persist-queue Queue (files), synced every 100": peer(peers.persist_file),
        },
    )
    ours = spent.pop("fsync") / count * 1e9
    for name, seconds in spent.items():
        yield Figure(f"write, 20 bytes, {count:,} only (fsync)", ours, "ns", name, seconds / count * 1e9)
