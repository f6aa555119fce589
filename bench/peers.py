"""Peers: LMDB, SQLite and persist-queue doing what headrace does, each as fast as its manual allows.

Keys are record numbers in order, which is LMDB's and SQLite's best case. All functions take a path where
nothing is yet, and answer seconds; opening and closing are not counted, committing is.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path

import lmdb
import persistqueue

from bench.measure import timed

GROUP = 1000
"""Records in a transaction."""
_MAP_BYTES = 8 << 30
_key = struct.Struct(">Q").pack


def groups(pool: Sequence[bytes], count: int) -> Iterator[list[bytes]]:
    """`count` records of `pool`, over and over, in lists as long as a transaction."""
    records = cycle(pool)
    for _ in range(count // GROUP):
        yield list(islice(records, GROUP))


def lmdb_put(path: Path, pool: Sequence[bytes], count: int, *, sync: bool) -> float:
    """One `put` a record (append=True), a transaction for each GROUP."""
    with lmdb.open(str(path), map_size=_MAP_BYTES, sync=sync) as env:
        parts, number = list(groups(pool, count)), 0
        with timed() as spent:
            for part in parts:
                with env.begin(write=True) as transaction:
                    put = transaction.put
                    for data in part:
                        put(_key(number), data, append=True)
                        number += 1
    return spent[0]


def lmdb_putmulti(path: Path, pool: Sequence[bytes], count: int, *, sync: bool) -> float:
    """`putmulti` of GROUP ready pairs (append=True), a transaction for each."""
    with lmdb.open(str(path), map_size=_MAP_BYTES, sync=sync) as env:
        parts = []
        for at, part in enumerate(groups(pool, count)):
            parts.append([(_key(at * GROUP + row), data) for row, data in enumerate(part)])
        with timed() as spent:
            for pairs in parts:
                with env.begin(write=True) as transaction, transaction.cursor() as cursor:
                    cursor.putmulti(pairs, append=True)
    return spent[0]


def lmdb_iterate(path: Path) -> float:
    """All values through one cursor, as bytes, in a `for`."""
    with lmdb.open(str(path), map_size=_MAP_BYTES, readonly=True) as env, env.begin() as transaction:
        values = transaction.cursor().iternext(keys=False, values=True)
        with timed() as spent:
            for _ in values:
                pass
    return spent[0]


def lmdb_step(path: Path) -> float:
    """All values through one cursor, one call a value."""
    with lmdb.open(str(path), map_size=_MAP_BYTES, readonly=True) as env, env.begin() as transaction:
        cursor = transaction.cursor()
        step, value = cursor.next, cursor.value
        with timed() as spent:
            while step():
                value()
    return spent[0]


def _sqlite(path: Path, synchronous: str | None) -> sqlite3.Connection:
    path.mkdir(exist_ok=True)
    db = sqlite3.connect(path / "records.db", isolation_level=None)
    db.execute("pragma journal_mode = wal")
    if synchronous is not None:
        db.execute(f"pragma synchronous = {synchronous}")
    return db


def sqlite_insert(path: Path, pool: Sequence[bytes], count: int, *, synchronous: str | None = None) -> float:
    """One `execute` a record, a transaction for each GROUP."""
    with closing(_sqlite(path, synchronous)) as db:
        db.execute("create table records (id integer primary key, data blob not null)")
        parts = list(groups(pool, count))
        with timed() as spent:
            for part in parts:
                execute = db.execute
                execute("begin")
                for data in part:
                    execute("insert into records (data) values (?)", (data,))
                execute("commit")
    return spent[0]


def sqlite_insert_many(
    path: Path, pool: Sequence[bytes], count: int, *, synchronous: str | None = None
) -> float:
    """`executemany` of GROUP ready rows, a transaction for each."""
    with closing(_sqlite(path, synchronous)) as db:
        db.execute("create table records (id integer primary key, data blob not null)")
        parts = [[(data,) for data in part] for part in groups(pool, count)]
        with timed() as spent:
            for rows in parts:
                db.execute("begin")
                db.executemany("insert into records (data) values (?)", rows)
                db.execute("commit")
    return spent[0]


def sqlite_select(path: Path) -> float:
    """All values of one select, in a `for`."""
    with closing(_sqlite(path, None)) as db, timed() as spent:
        for _ in db.execute("select data from records order by id"):
            pass
    return spent[0]


def persist_sqlite(path: Path, pool: Sequence[bytes], count: int) -> float:
    """persist-queue's SQLiteQueue with auto_commit=False, committed by `task_done` for each GROUP."""
    with closing(persistqueue.SQLiteQueue(str(path), auto_commit=False)) as queue:
        parts = list(groups(pool, count))
        with timed() as spent:
            for part in parts:
                for data in part:
                    queue.put(data)
                queue.task_done()
    return spent[0]


def persist_file(path: Path, pool: Sequence[bytes], count: int) -> float:
    """persist-queue's file Queue as it comes: renamed into place at each put, synced every 100."""
    queue = persistqueue.Queue(str(path))
    parts = list(groups(pool, count))
    with timed() as spent:
        for part in parts:
            for data in part:
                queue.put(data)
    return spent[0]
