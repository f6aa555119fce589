"""The index of ids: which id is where in a stream, exactly, on disk.

`ids.sqlite` beside the log maps each id to the index of its entry. The log is the truth and the index is
caught up with it: it says how far it has read (`upto`), and opening it reads the ids that are missing and
forgets those of entries that a crash took away. So it needs no sync of its own and is exact after any crash.

Each change is a transaction in which it is looked whether the log is still this writer's. One that was taken
over while it hung in a write can so not add ids of entries that went into a file which nobody reads: its
transaction ends before that of the new writer, which catches up, or is refused.

SQLite keeps its pages on disk and a bounded cache of them, so memory does not grow with the ids. It has no
checksums of its own: an index that cannot be read is made again from the log, but a bit that flips inside an
id on disk is not noticed here (it would be in the log).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
    return UniqueIds(DiskIds(log, field), log.schema.field(field).type, window)


class DiskIds:
    """Used by one thread at a time: `UniqueIds` sees to that."""

    def __init__(self, log: Log, field: str) -> None:
        self._log = log
        self._field = field
        self._owner = _owner(log, field)
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
            self._log.check()  # it is not ours to remove if the log is not
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

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A transaction of whoever holds the log; Fenced if that is somebody else by now."""
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._log.check()
            yield

    def _insert(self, pairs: Iterable[tuple[Any, int]], upto: int) -> None:
        with self._changing():
            self._database.executemany("INSERT OR REPLACE INTO ids VALUES (?, ?)", pairs)
            self._database.execute("UPDATE state SET upto = ?", (upto,))

    def _catch_up(self) -> None:
        """Make the index say what the log says."""
        next_index = self._log.next_index
        with self._changing():
            row = self._database.execute("SELECT log, upto FROM state").fetchone()
            if row is None or row[0] != self._owner:
                self._database.execute("DELETE FROM ids")
                self._database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, 0)", (self._owner,))
                row = (None, 0)
            upto = row[1]
            if upto > next_index:  # the log lost what was never durable, or was truncated
                self._database.execute("DELETE FROM ids WHERE entry >= ?", (next_index,))
                self._database.execute("UPDATE state SET upto = ?", (next_index,))
                upto = next_index
        start = max(upto, self._log.first_index)
        for batch in self._log.read(start, columns=[self._field], on_damage=lambda damage: None):
            values = plain_ids(batch.records.column(0))
            indexes = range(batch.base_index, batch.next_index)
            self._insert(zip(values, indexes, strict=True), batch.next_index)


def _owner(log: Log, field: str) -> str:
    """What an index is for: this log. Times in other units than microseconds were mixed with such once, and
    an index that has these is not believed any more."""
    unit = getattr(log.schema.field(field).type, "unit", "us")
    return log.meta.id if unit == "us" else f"{log.meta.id} in {unit}"


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
