"""Entries: what listeners get, and how they are made of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.segment_reader import Batch
from headrace.stream.columns import ValueColumns
from headrace.stream.declaration import DATA, KEY, Declaration
from headrace.stream.errors import UnknownVariant
from headrace.stream.objects import PIECE_ROWS, dict_builder, pieces
from headrace.stream.record import TAG

OnUnknown = Literal["error", "skip", "raw"]
_CHUNK_ROWS = 4096


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a stream."""

    index: int
    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Head:
    """HEAD moved to `key` without an entry: no later entry has a smaller order key."""

    key: Any
    next_index: int


class EntryMaker:
    """Makes the entries of batches, as the declared type."""

    def __init__(self, declaration: Declaration, on_unknown: OnUnknown = "error") -> None:
        self._declaration = declaration
        self._on_unknown = on_unknown
        self._builders = {variant.tag: variant.builder() for variant in declaration.variants}

    def entries(self, batch: Batch) -> Iterator[Entry]:
        """The batch's entries."""
        return chain.from_iterable(self.runs(batch))

    def runs(self, batch: Batch) -> Iterator[Iterator[Entry]]:
        """The same in runs, so that whoever wants them all asks no Python for each."""
        for start in range(batch.base_index, batch.next_index, _CHUNK_ROWS):
            yield from self._chunk(batch.slice(start, start + _CHUNK_ROWS))

    def keys_and_values(self, records: pa.RecordBatch) -> tuple[list[Any], list[Any]]:
        """Of a stream with an order key: the keys and the values of all rows."""
        columns = self._columns(records)
        values = list(chain.from_iterable(self._values(columns)))
        assert self._declaration.order_by is not None
        return columns[self._declaration.order_by], values

    def values(self, records: pa.RecordBatch) -> list[Any]:
        """The values of all rows."""
        return list(chain.from_iterable(self._values(self._columns(records))))

    def _columns(self, records: pa.RecordBatch) -> ValueColumns:
        return ValueColumns(records, self._declaration.columns)

    def _chunk(self, batch: Batch) -> Iterator[Iterator[Entry]]:
        """Entries are made as they are asked for: one that is let go leaves its room to the next."""
        columns = self._columns(batch.records)
        indexes = keys = list(range(batch.base_index, batch.next_index))
        values = self._values(columns)
        if self._declaration.order_by is not None:
            keys = columns[self._declaration.order_by]
        skipping = self._on_unknown == "skip" and self._declaration.polymorphic
        at = 0
        for piece in values:
            stop = at + len(piece)
            whole = len(piece) == len(indexes)
            places = (indexes, keys) if whole else (indexes[at:stop], keys[at:stop])
            made = map(Entry, *places, piece)
            yield (entry for entry in made if entry.value is not None) if skipping else made
            del piece, made  # before the next ones are made: fewer are alive at once (see `objects`)
            at = stop

    def _values(self, columns: ValueColumns) -> Iterable[list[Any]]:
        """The values in pieces, each made when it is asked for."""
        declaration = self._declaration
        if declaration.raw:
            return (columns[DATA],)
        if declaration.polymorphic:
            return self._variants(columns.records)
        if declaration.variants:
            variant = declaration.variants[0]
            return map(self._builders[variant.tag], pieces([columns[name] for name in variant.fields]))
        return self._dicts(columns)

    def _dicts(self, columns: ValueColumns) -> Iterator[list[Any]]:
        names = tuple(name for name in columns.names if name != KEY)
        return map(dict_builder(names), pieces([columns[name] for name in names]))

    def _variants(self, records: pa.RecordBatch) -> Iterator[list[Any]]:
        """Objects of several classes: made class by class, and taken in order."""
        tags = records.column(records.schema.get_field_index(TAG))
        made = {}
        for tag in pc.unique(tags).to_pylist():
            rows = pc.indices_nonzero(pc.equal(tags, tag))
            made[tag] = chain.from_iterable(self._objects(tag, records.take(rows)))
        values = map(next, map(made.__getitem__, tags.to_pylist()), repeat(None))
        return iter(lambda: list(islice(values, PIECE_ROWS)), [])

    def _objects(self, tag: str, records: pa.RecordBatch) -> Iterable[list[Any]]:
        variant = self._declaration.variant(tag)
        if variant is not None:
            columns = ValueColumns(records, variant.fields)
            return map(self._builders[tag], pieces([columns[name] for name in variant.fields]))
        if not self._declaration.variants or self._on_unknown == "raw":
            return self._dicts(self._columns(records))
        if self._on_unknown == "skip":
            return ()
        known = ", ".join(variant.tag for variant in self._declaration.variants)
        raise UnknownVariant(
            f"an entry is a {tag}, which this program does not know (it knows {known}): "
            "update its type, or listen with on_unknown='skip' or 'raw'"
        )
