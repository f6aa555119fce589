"""The index of ids: which id is where in a stream, exactly, on disk.

`ids.sqlite` beside the log maps each id to the index of its entry. The log is the truth and the index is
caught up with it: it says how far it has read (`upto`), and opening it reads the ids that are missing and
forgets those of entries that a crash took away. So it needs no sync of its own and is exact after any crash.

SQLite keeps its pages on disk and a bounded cache of them, so memory does not grow with the ids. It has no
checksums of its own: an index that cannot be read is made again from the log, but a bit that flips inside an
id on disk is not noticed here (it would be in the log).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from headrace.kernel.errors import DiskFailed
from headrace.log.log import Log
from headrace.stream.unique import UniqueIds, plain_ids

IDS_FILE = "ids.sqlite"
_CACHE_KIB = 32 * 1024
_CHUNK = 500
_TABLES = """
CREATE TABLE IF NOT EXISTS ids (id PRIMARY KEY, entry INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), log TEXT, upto INTEGER NOT NULL);
"""


def open_ids(log: Log, field: str, window: int | None = None) -> UniqueIds:
    """The ids of the stream in this log."""
    return UniqueIds(DiskIds(log, field), window)


class DiskIds:
    """Used by one thread at a time: `UniqueIds` sees to that."""

    def __init__(self, log: Log, field: str) -> None:
        self._log = log
        self._field = field
        self._database = _open(log.path / IDS_FILE)
        self._surely(self._catch_up)

    def known(self, values: Sequence[Any]) -> dict[Any, int]:
        found: dict[Any, int] = self._surely(lambda: self._known(values))
        return found

    def add(self, pairs: Sequence[tuple[Any, int]], next_index: int) -> None:
        self._surely(lambda: self._insert(pairs, next_index))

    def close(self) -> None:
        self._database.close()

    def _surely(self, work: Callable[[], Any]) -> Any:
        """Do it; if the index turns out to be damaged, make it again from the log and do it once more."""
        try:
            return work()
        except sqlite3.Error:
            self._database.close()
            _remove(self._log.path / IDS_FILE)
        try:
            self._database = _open(self._log.path / IDS_FILE)
            self._catch_up()
            return work()
        except sqlite3.Error as error:
            where = self._log.path / IDS_FILE
            raise DiskFailed(f"the index of ids at {where} cannot be used ({error}): reopen it") from error

    def _known(self, values: Sequence[Any]) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for at in range(0, len(values), _CHUNK):
            part = list(values[at : at + _CHUNK])
            marks = ",".join("?" * len(part))
            found.update(self._database.execute(f"SELECT id, entry FROM ids WHERE id IN ({marks})", part))
        return found

    def _insert(self, pairs: Iterable[tuple[Any, int]], upto: int) -> None:
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO ids VALUES (?, ?)", pairs)
            self._database.execute("UPDATE state SET upto = ?", (upto,))

    def _catch_up(self) -> None:
        """Make the index say what the log says."""
        row = self._database.execute("SELECT log, upto FROM state").fetchone()
        if row is None or row[0] != self._log.meta.id:
            with self._database:
                self._database.execute("DELETE FROM ids")
                self._database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, 0)", (self._log.meta.id,))
            row = (None, 0)
        upto, next_index = row[1], self._log.next_index
        if upto > next_index:  # the log lost what was never durable, or was truncated
            with self._database:
                self._database.execute("DELETE FROM ids WHERE entry >= ?", (next_index,))
                self._database.execute("UPDATE state SET upto = ?", (next_index,))
            upto = next_index
        start = max(upto, self._log.first_index)
        for batch in self._log.read(start, columns=[self._field], on_damage=lambda damage: None):
            values = plain_ids(batch.records.column(0))
            indexes = range(batch.base_index, batch.next_index)
            self._insert(zip(values, indexes, strict=True), batch.next_index)


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _opened(path)
    except sqlite3.Error:  # damaged, or something else: it can be made again from the log
        _remove(path)
    try:
        return _opened(path)
    except sqlite3.Error as error:
        raise DiskFailed(f"the index of ids at {path} cannot be made ({error})") from error


def _remove(path: Path) -> None:
    for name in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        name.unlink(missing_ok=True)


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, isolation_level="IMMEDIATE")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    database.executescript(_TABLES)
    database.execute("SELECT * FROM ids LIMIT 1").fetchone()
    return database
