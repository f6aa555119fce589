"""Unique ids: no id is published twice.

Ids that are published but not in the index yet are held in memory until the batch they are in is indexed. The
index itself is on the disk beside the log (`id_index`), or on the node that keeps the stream.

With a window only ids of the last so many entries are looked at; older ones may come again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from headrace.kernel.errors import BadSettings, Closed, SchemaMismatch
from headrace.stream.declaration import Declaration
from headrace.stream.errors import BadEntry, DuplicateId

_PLAIN = (pa.int64(), pa.string(), pa.binary())
"""Types whose values, once they are checked, are what SQLite keeps."""


class IdIndex(Protocol):
    """Where the entries with given ids are, of all that are in the stream."""

    def known(self, values: Sequence[Any]) -> dict[Any, int]: ...

    def add(self, pairs: Sequence[tuple[Any, int]], next_index: int) -> None:
        """The stream has these now, and all its entries below `next_index` are known."""
        ...

    def close(self) -> None: ...


class UniqueIds:
    """The ids of one stream. One thread publishes and another may index; a lock lets them take turns."""

    def __init__(self, index: IdIndex, kind: pa.DataType, window: int | None = None) -> None:
        """`kind`: the type of the ids."""
        self._index = index
        self._kind = kind
        self._window = window
        self._lock = threading.Lock()
        self._recent: dict[Any, int] = {}
        self._closed = False

    def check(self, value: Any, index: int) -> None:
        """Take note that the entry at `index` has this id, or raise DuplicateId."""
        plain = plain_id(value, self._kind)
        with self._lock:
            if self._closed:
                raise Closed("the publisher is closed")
            found = self._recent.get(plain)
            if found is None:
                found = self._index.known([plain]).get(plain)
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
            known = self._index.known(values)
            for row, value in enumerate(values):
                found = self._recent.get(value, known.get(value))
                index = first_index + row - len(rows)
                if found is not None and self._counts(found, index):
                    rows.append(row)
                else:
                    self._recent[value] = index
        return rows

    def known(self, values: Sequence[Any]) -> dict[Any, int]:
        """Where entries with these ids are, those included that are not in the index yet."""
        with self._lock:
            recent = {value: self._recent[value] for value in values if value in self._recent}
            return self._index.known(values) | recent

    def index_up_to(self, next_index: int) -> None:
        """Entries below `next_index` are in the stream: move their ids from memory to the index."""
        with self._lock:
            done = [(value, index) for value, index in self._recent.items() if index < next_index]
            if done:
                self._index.add(done, next_index)
            for value, _ in done:
                del self._recent[value]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._index.close()

    def _counts(self, found: int, index: int) -> bool:
        return self._window is None or found >= index - self._window


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


def plain_id(value: Any, kind: pa.DataType) -> Any:
    """An id that `publish` has checked, as SQLite keeps it."""
    if value is None:
        raise BadEntry("the id is missing: in this stream every entry needs one")
    return value if kind in _PLAIN else plain_ids(pa.array([value], kind))[0]


def plain_ids(column: pa.Array) -> list[Any]:
    """The ids of a column, as SQLite keeps them."""
    if column.null_count:
        raise SchemaMismatch(f"{column.null_count} ids are missing: in this stream every entry needs one")
    plain = plain_type(column.type)  # the same bits: a cast could refuse some
    return (column if plain == column.type else column.view(plain)).to_pylist()  # type: ignore[no-any-return]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of ids as SQLite keeps them: times as numbers, so that they are the same in any zone.

    They count in the unit of their column. SQLite's integers are signed: those of 64 bits without a sign are
    taken for signed ones.
    """
    if pa.types.is_timestamp(kind) or pa.types.is_uint64(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind
