"""The journal as a table of SQLite: the one of the seed, with its three indexes.

A job that is put is looked for by its address, then updated or inserted; taking it sets its status; done
deletes it. Each step is a transaction, or, by batches, each step of a thousand jobs.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.journal.data import DOMAIN, PRIORITY

_TABLE = """
create table journal (
    id integer primary key autoincrement,
    domain text not null,
    priority smallint not null,
    key_start_date bigint not null,
    uri text not null,
    status bigint default null,
    next_processing bigint not null as (ifnull(status, key_start_date))
);
create index journal_index on journal (domain, priority, key_start_date);
create index journal_uri on journal (uri);
create index journal_next_row on journal (domain, next_processing);
"""
_FIND = "select id from journal where uri = ? and status is null"
_INSERT = "insert into journal (domain, priority, key_start_date, uri) values (?, ?, ?, ?)"
_UPDATE = "update journal set priority = ?, key_start_date = ? where id = ?"
_NEXT = (
    "select id, uri from journal where domain = ? and key_start_date <= ? and status is null "
    "order by priority, key_start_date limit ?"
)
_TAKE = "update journal set status = ? where id = ?"
_DONE = "delete from journal where id = ?"


class SeedTable:
    def __init__(self, path: Path, synchronous: str) -> None:
        path.mkdir()
        self._database = sqlite3.connect(
            path / "journal.sqlite", isolation_level=None, check_same_thread=False
        )
        self._database.execute("pragma journal_mode = wal")
        self._database.execute(f"pragma synchronous = {synchronous}")
        self._database.executescript(_TABLE)
        self._lock = threading.Lock()
        """Threads take turns: waiting for SQLite's own lock is sleeping and trying again, which is slower."""

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("begin immediate")
            yield self._database
            self._database.execute("commit")

    def put(self, uri: str) -> None:
        with self._transaction() as database:
            self._put(database, uri)

    def next(self) -> int:
        with self._transaction() as database:
            now = _now_us()
            id_, _uri = database.execute(_NEXT, (DOMAIN, now, 1)).fetchone()
            database.execute(_TAKE, (now, id_))
        return int(id_)

    def done(self, id_: int) -> None:
        with self._transaction() as database:
            database.execute(_DONE, (id_,))

    def put_batch(self, uris: Sequence[str]) -> None:
        with self._transaction() as database:
            for uri in uris:
                self._put(database, uri)

    def next_batch(self, count: int) -> list[int]:
        with self._transaction() as database:
            now = _now_us()
            ids = [id_ for id_, _uri in database.execute(_NEXT, (DOMAIN, now, count))]
            database.executemany(_TAKE, [(now, id_) for id_ in ids])
        return ids

    def done_batch(self, ids: Sequence[int]) -> None:
        with self._transaction() as database:
            database.executemany(_DONE, [(id_,) for id_ in ids])

    def close(self) -> None:
        self._database.close()

    def _put(self, database: sqlite3.Connection, uri: str) -> None:
        found = database.execute(_FIND, (uri,)).fetchone()
        if found is None:
            database.execute(_INSERT, (DOMAIN, PRIORITY, _now_us(), uri))
        else:
            database.execute(_UPDATE, (PRIORITY, _now_us(), found[0]))


def _now_us() -> int:
    return time.time_ns() // 1000
