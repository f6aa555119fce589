"""Writing many records at once: a list of bytes, or Arrow batches that are ready."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa

from bench import peers
from bench.log.data import CHUNK_BYTES, POOL, SIZES, open_log, open_writer, pool, ready_batches, said
from bench.measure import Aim, Figure, Run, Table, best, timed
from headrace.log import Finalize

_COUNTS = {20: 1_000_000, 100: 400_000, 1024: 90_000}
"""All of it fits one segment, so that none is finalized (and synced) on the way."""
_SEGMENT_BYTES = Finalize().bytes


def run(run: Run) -> Iterator[Table]:
    run.say("writing lists and batches")
    table = Table(
        "Writing many records at once (durability: os, to fresh files)",
        "write_many: lists of 10,000. append: batches of 1 MiB. LMDB and SQLite: ready pairs, 1,000 a "
        "transaction, never synced. os.write and memcpy: the same bytes in pieces of 1 MiB.",
    )
    for size in SIZES:
        table.figures += _figures(run, size)
    table.figures += _several_segments(run)
    yield table


def _lists(run: Run, records: list[bytes], count: int) -> float:
    with run.fresh() as path, open_writer(path, "os") as out, timed() as spent:
        for _ in range(count // POOL):
            out.write_many(records)
        out.flush()
    return spent[0]


def _ready(run: Run, records: Sequence[bytes], count: int) -> float:
    parts, rows = list[pa.RecordBatch](), 0
    for part in cycle(ready_batches(records)):
        parts.append(part)
        if (rows := rows + part.num_rows) >= count:
            break
    with run.fresh() as path, open_log(path) as log, timed() as spent:
        for part in parts:
            log.append(part)
        log.sync()
    return spent[0] * count / rows


def _pieces(records: Sequence[bytes], total: int) -> list[memoryview]:
    """`total` bytes of the records, over and over, in pieces of CHUNK_BYTES."""
    data = memoryview(b"".join(records))
    whole = [data[at : at + CHUNK_BYTES] for at in range(0, len(data) - CHUNK_BYTES + 1, CHUNK_BYTES)]
    whole = whole or [memoryview(bytes(data) * (CHUNK_BYTES // len(data) + 1))[:CHUNK_BYTES]]
    return list(islice(cycle(whole), total // CHUNK_BYTES))


def _raw(run: Run, records: Sequence[bytes], total: int, sync_bytes: int | None = None) -> float:
    pieces = _pieces(records, total)
    with run.fresh() as path:
        path.mkdir()
        fd, since = _open(path / "0"), 0
        with timed() as spent:
            for at, piece in enumerate(pieces, 1):
                os.write(fd, piece)
                since += len(piece)
                if sync_bytes is not None and since >= sync_bytes:
                    os.fdatasync(fd)
                    os.close(fd)
                    fd, since = _open(path / str(at)), 0
        os.close(fd)
    return spent[0]


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)


def _copy(records: Sequence[bytes], total: int) -> float:
    pieces = _pieces(records, total)
    target = memoryview(bytearray(CHUNK_BYTES))
    with timed() as spent:
        for piece in pieces:
            target[: len(piece)] = piece
    return spent[0]


def _figures(run: Run, size: int) -> Iterator[Figure]:
    records, count = pool(size), run.scaled(_COUNTS[size], _COUNTS[size] // 9 // POOL * POOL)
    total = size * count

    def peer(measure: Callable[..., float], **options: object) -> Callable[[], float]:
        def once() -> float:
            with run.fresh() as path:
                return measure(path, records, count, **options)

        return once

    spent = best(
        run.rounds,
        {
            "write_many": lambda: _lists(run, records, count),
            "append": lambda: _ready(run, records, count),
            "raw": lambda: _raw(run, records, total),
            "copy": lambda: _copy(records, total),
            "lmdb": peer(peers.lmdb_putmulti, sync=False),
            "lmdb-put": peer(peers.lmdb_put, sync=False),
            "sqlite": peer(peers.sqlite_insert_many, synchronous="off"),
        },
    )
    whole_pieces = total // CHUNK_BYTES * CHUNK_BYTES
    ns = {name: seconds / count * 1e9 for name, seconds in spent.items()}
    rate = {name: total / seconds / 1e9 for name, seconds in spent.items()}
    rate |= {name: whole_pieces / spent[name] / 1e9 for name in ("raw", "copy")}
    for way in ("write_many", "append"):
        what = f"{way}, {said(size)}"
        aim = Aim(ratio=15) if size == 20 else None
        yield Figure(what, ns[way], "ns", "LMDB put", ns["lmdb-put"], aim)
        yield Figure(what, ns[way], "ns", "LMDB putmulti", ns["lmdb"], aim)
        yield Figure(what, ns[way], "ns", "SQLite executemany", ns["sqlite"])
        aim = Aim(ratio=0.6) if size == 1024 else None
        yield Figure(what, rate[way], "GB/s", "os.write of the same bytes", rate["raw"], aim)
        yield Figure(what, rate[way], "GB/s", "memcpy of the same bytes", rate["copy"])


def _several_segments(run: Run) -> Iterator[Figure]:
    """A finalized segment is synced whatever the durability: past 128 MiB the disk counts, too."""
    records, count = pool(1024), run.scaled(500_000, 300_000)
    total = 1024 * count
    spent = best(
        run.scaled(3, 1),
        {
            "append": lambda: _ready(run, records, count),
            "raw": lambda: _raw(run, records, total),
            "synced": lambda: _raw(run, records, total, _SEGMENT_BYTES),
        },
    )
    rate = {name: total / seconds / 1e9 for name, seconds in spent.items()}
    what = f"append, 1 KiB, {total / 1e9:.1f} GB in several segments"
    yield Figure(what, rate["append"], "GB/s", "os.write, synced every 128 MiB", rate["synced"])
    yield Figure(what, rate["append"], "GB/s", "os.write, never synced", rate["raw"])
