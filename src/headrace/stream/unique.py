"""Unique ids: an exact index of the ids in a stream, on disk.

`ids.sqlite` beside the log maps each id to the index of its entry. The log is the truth and the index is
caught up with it: it says how far it has read (`upto`), and opening it reads the ids that are missing and
forgets those of entries that a crash took away. So it needs no sync of its own and is exact after any crash.

SQLite keeps its pages on disk and a bounded cache of them, so memory does not grow with the ids. Ids that
are published but not in the index yet are held in memory until the batch they are in is indexed.

SQLite has no checksums of its own: an index that cannot be read is made again from the log, but a bit that
flips inside an id on disk is not noticed here (it would be in the log).

With a window only ids of the last so many entries are looked at; older ones may come again.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.kernel.errors import BadSettings, Closed, DiskFailed, SchemaMismatch
from headrace.log.log import Log
from headrace.stream.declaration import Declaration
from headrace.stream.errors import BadEntry, DuplicateId

IDS_FILE = "ids.sqlite"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_CACHE_KIB = 32 * 1024
_CHUNK = 500
_TABLES = """
CREATE TABLE IF NOT EXISTS ids (id PRIMARY KEY, entry INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), log TEXT, upto INTEGER NOT NULL);
"""


class UniqueIds:
    """The ids of one stream. One thread publishes and another may index; a lock lets them take turns."""

    def __init__(self, log: Log, field: str, window: int | None = None) -> None:
        self._log = log
        self._field = field
        self._window = window
        self._lock = threading.Lock()
        self._recent: dict[Any, int] = {}
        self._closed = False
        self._database = _open(log.path / IDS_FILE)
        self._surely(self._catch_up)

    def check(self, value: Any, index: int) -> None:
        """Take note that the entry at `index` has this id, or raise DuplicateId."""
        plain = plain_id(value)
        with self._lock:
            if self._closed:
                raise Closed(f"the publisher of {self._log.path} is closed")
            found = self._recent.get(plain)
            if found is None:
                found = self._surely(lambda: self._known([plain])).get(plain)
            if found is not None and self._counts(found, index):
                raise DuplicateId(f"the id {value!r} is in the stream already, at index {found}", found)
            self._recent[plain] = index

    def forget_from(self, index: int) -> None:
        """Entries from `index` on that were noted here were refused after all."""
        with self._lock:
            self._recent = {value: at for value, at in self._recent.items() if at < index}

    def duplicates(self, values: Sequence[Any], first_index: int) -> list[int]:
        """The rows of a batch whose id is in the stream or earlier in the batch; the others are noted."""
        rows: list[int] = []
        with self._lock:
            known = self._surely(lambda: self._known(values))
            for row, value in enumerate(values):
                found = self._recent.get(value, known.get(value))
                index = first_index + row - len(rows)
                if found is not None and self._counts(found, index):
                    rows.append(row)
                else:
                    self._recent[value] = index
        return rows

    def index_up_to(self, next_index: int) -> None:
        """Entries below `next_index` are in the log: move their ids from memory to the index."""
        with self._lock:
            done = [(value, index) for value, index in self._recent.items() if index < next_index]
            if done:
                self._surely(lambda: self._insert(done, next_index))
            for value, _ in done:
                del self._recent[value]

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

    def _counts(self, found: int, index: int) -> bool:
        return self._window is None or found >= index - self._window

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

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._database.close()


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


def check_id_field(declaration: Declaration, name: str) -> None:
    """Refuse a field whose values cannot be ids: they must be there, and be comparable."""
    kind = declaration.columns.get(name)
    if kind is None:
        raise BadSettings(f"unique_by names {name!r}, which is not a field")
    if not any(check(kind.arrow) for check in _ID_TYPES):
        raise BadSettings(f"unique_by names {name!r}, a {kind.arrow}: ids are numbers, text, bytes or times")
    if any(name not in each.fields or each.fields[name].nullable for each in declaration.variants):
        raise BadSettings(f"unique_by names {name!r}, which not every entry has: an id is mandatory")


_ID_TYPES = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_timestamp,
    pa.types.is_date32,
)


def plain_id(value: Any) -> Any:
    """An id as SQLite keeps it: times as numbers, so that they are the same in any zone."""
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    if value is None:
        raise BadEntry("the id is missing: in this stream every entry needs one")
    return value


def plain_ids(column: pa.Array) -> list[Any]:
    """The ids of a column, as SQLite keeps them."""
    if column.null_count:
        raise SchemaMismatch(f"{column.null_count} ids are missing: in this stream every entry needs one")
    if pa.types.is_timestamp(column.type):
        column = column.view(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.view(pa.int32())
    return column.to_pylist()  # type: ignore[no-any-return]
