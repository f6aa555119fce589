"""The view `history`: every change of a journal that its log still has, at once or as a stream.

    spark.read.format("headrace").option("path", "data").option("journal", "pages").option("view", "history")

It is the journal's log with words instead of numbers, so it is planned and read like any stream. What is a
second old or less may not be in the log yet. How far back it goes is the journal's setting `history`: a log
that is swept says again what is still alive, with the time at which it was said first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from headrace.journal.engine import LOG_DIRECTORY
from headrace.journal.events import SCHEMA, Kind
from headrace.journal.value import Type
from headrace.kernel.errors import BadSettings, Damaged, NotFound, Trimmed
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.mark import Settled
from headrace.log.plan import Span, plan_spans
from headrace.log.positions import PositionFile
from headrace.log.segment_reader import Batch
from headrace.spark.origin import About, existing_store
from headrace.store import JOURNALS_DIRECTORY, Store

TYPE_NAMES = {int(kind): kind.name.lower() for kind in Type}
_WORDS = {int(kind): kind.name.lower() for kind in Kind}
_TEXTS = ("key", "other")
_SHOWN = {"kind": pa.string(), "type": pa.string(), **dict.fromkeys(_TEXTS, pa.string())}
HISTORY = pa.schema(
    [pa.field(field.name, _SHOWN.get(field.name, field.type), field.nullable) for field in SCHEMA]
    + [pa.field("text", pa.string())]
)
"""The columns of the log; `text` is the value where it is a string."""


@dataclass(frozen=True, slots=True)
class JournalOrigin:
    """The log of a journal, as an origin of batches."""

    path: str
    name: str

    def about(self) -> About:
        with self._opened() as log:
            return About(log.meta.id, HISTORY, None)

    def first_index(self) -> int:
        with self._opened() as log:
            return log.first_index

    def settled(self) -> Settled:
        with self._opened() as log:
            return log.settled

    def index_of(self, key: str | int) -> int:
        raise no_keys()

    def key_at(self, index: int) -> int:
        return index

    def epoch_at(self, index: int) -> int:
        with self._opened() as log:
            try:
                found = next(log.read(index, index + 1, columns=["kind"]), None)
            except (Damaged, Trimmed):
                return 0
            return 0 if found is None else found.epoch

    def plan(self, start: int, stop: int, rows: int | None) -> list[Span]:
        with self._opened() as log:
            return plan_spans(Disk(), log.path, log.meta, start, stop, rows)

    def read(self, span: Span, columns: Sequence[str] | None) -> Iterator[Batch]:
        names = HISTORY.names if columns is None else list(columns)
        with self._opened() as log:
            for batch in log.read(span.start, span.stop, columns=stored_columns(names)):
                yield shown_batch(batch.slice(span.start, span.stop), names)

    def remember(self, position: str) -> PositionFile:
        raise no_positions()

    @contextmanager
    def _opened(self) -> Iterator[Log]:
        with existing_store(self.path) as store:
            place = journal_directory(store, self.name) / LOG_DIRECTORY
        with Log.open(place, read_only=True) as log:
            yield log


_MADE_OF = ("type", "value")


def journal_directory(store: Store, name: str) -> Path:
    """Where the journal is, or NotFound with those that are there."""
    if not store.has_journal(name):
        raise no_journal(name, str(store.path), store.journals())
    return store.path / JOURNALS_DIRECTORY / name


def no_journal(name: str, where: str, there: Sequence[str]) -> NotFound:
    names = ", ".join(there[:5]) or "none"
    return NotFound(
        f"there is no journal {name!r} in {where}: check the option 'journal' (there are: {names})"
    )


def no_keys() -> BadSettings:
    return BadSettings("a journal's history is ordered by index: use startIndex and endIndex")


def no_positions() -> BadSettings:
    return BadSettings(
        "a journal waits for nobody who reads its history: leave the option 'position' out, and let the "
        "journal's setting 'history' keep it long enough"
    )


def stored_columns(names: Sequence[str]) -> list[str]:
    """The columns of the log that these are made of."""
    return [name for name in SCHEMA.names if name in names or ("text" in names and name in _MADE_OF)]


def shown_batch(batch: Batch, names: Sequence[str]) -> Batch:
    """A batch of the log as it is shown."""
    schema = pa.schema([HISTORY.field(name) for name in names])
    columns = [_column(batch.records, name) for name in names]
    return replace(batch, records=pa.RecordBatch.from_arrays(columns, schema=schema))


def _column(records: pa.RecordBatch, name: str) -> pa.Array:
    if name == "text":
        return _texts(records)
    column = records.column(name)
    if name == "kind":
        return _named(column, _WORDS, "kind")
    if name == "type":
        return _named(column, TYPE_NAMES, "type")
    return _decoded(column) if name in _TEXTS else column


def _named(column: pa.Array, words: dict[int, str], what: str) -> pa.Array:
    found = [None if each is None else words.get(each, f"{what} {each}") for each in column.to_pylist()]
    return pa.array(found, pa.string())


def _texts(records: pa.RecordBatch) -> pa.Array:
    kinds, values = records.column("type").to_pylist(), records.column("value").to_pylist()
    found = [
        value.decode("utf-8", "replace") if kind == Type.STRING and value is not None else None
        for kind, value in zip(kinds, values, strict=True)
    ]
    return pa.array(found, pa.string())


def _decoded(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # somebody's keys are not UTF-8
        found = [None if each is None else each.decode("utf-8", "replace") for each in column.to_pylist()]
        return pa.array(found, pa.string())
