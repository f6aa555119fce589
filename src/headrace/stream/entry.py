"""Entries: what listeners get, and how they are made of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.segment_reader import Batch
from headrace.stream.columns import from_array
from headrace.stream.declaration import DATA, KEY, Declaration
from headrace.stream.errors import UnknownVariant
from headrace.stream.record import TAG, Variant, builder

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
        self._builders = {variant.tag: builder(variant) for variant in declaration.variants}

    def entries(self, batch: Batch) -> Iterator[Entry]:
        """The batch's entries, made a few thousand at a time: more would leave the processor's cache."""
        for start in range(batch.base_index, batch.next_index, _CHUNK_ROWS):
            yield from self._chunk(batch.slice(start, start + _CHUNK_ROWS))

    def keys_and_values(self, records: pa.RecordBatch) -> tuple[list[Any], list[Any]]:
        """Of a stream with an order key: the keys and the values of all rows."""
        columns = dict[str, list[Any]]()
        values = self._values(records, columns)
        assert self._declaration.order_by is not None
        return self._column(records, self._declaration.order_by, columns), values

    def values(self, records: pa.RecordBatch) -> list[Any]:
        """The values of all rows."""
        return self._values(records, {})

    def _chunk(self, batch: Batch) -> list[Entry]:
        indexes = list(range(batch.base_index, batch.next_index))
        if self._declaration.order_by is None:
            made = map(Entry, indexes, indexes, self.values(batch.records))
        else:
            made = map(Entry, indexes, *self.keys_and_values(batch.records))
        if self._on_unknown == "skip" and self._declaration.polymorphic:
            return [entry for entry in made if entry.value is not None]
        return list(made)

    def _values(self, records: pa.RecordBatch, columns: dict[str, list[Any]]) -> list[Any]:
        declaration = self._declaration
        if declaration.raw:
            return self._column(records, DATA, columns)
        if declaration.polymorphic:
            return self._variants(records)
        if declaration.variants:
            variant = declaration.variants[0]
            made = [self._column(records, name, columns) for name in variant.fields]
            return self._builders[variant.tag](made)
        return self._dicts(records)

    def _dicts(self, records: pa.RecordBatch) -> list[Any]:
        names = [name for name in records.schema.names if name != KEY]
        columns = [self._column(records, name, {}) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _column(self, records: pa.RecordBatch, name: str, made: dict[str, list[Any]]) -> list[Any]:
        """One column's values; the order key is usually a field as well, and made only once."""
        if name not in made:
            at = records.schema.get_field_index(name)
            kind = self._declaration.columns.get(name)
            if at < 0:
                made[name] = [None] * records.num_rows
            elif kind is None:  # a column that only an unknown variant has
                made[name] = records.column(at).to_pylist()
            else:
                made[name] = from_array(records.column(at), kind)
        return made[name]

    def _variants(self, records: pa.RecordBatch) -> list[Any]:
        """Objects of several classes: made class by class, then put in order."""
        tags = records.column(records.schema.get_field_index(TAG))
        values: list[Any] = [None] * records.num_rows
        for tag in pc.unique(tags).to_pylist():
            rows = pc.indices_nonzero(pc.equal(tags, tag))
            objects = self._objects(tag, records.take(rows))
            for row, value in zip(rows.to_pylist(), objects, strict=True):
                values[row] = value
        return values

    def _objects(self, tag: str, records: pa.RecordBatch) -> list[Any]:
        variant = self._declaration.variant(tag)
        if variant is not None:
            return self._builders[tag](self._columns_of(variant, records))
        if not self._declaration.variants or self._on_unknown == "raw":
            return self._dicts(records)
        if self._on_unknown == "skip":
            return [None] * records.num_rows
        known = ", ".join(variant.tag for variant in self._declaration.variants)
        raise UnknownVariant(
            f"an entry is a {tag}, which this program does not know (it knows {known}): "
            "update its type, or listen with on_unknown='skip' or 'raw'"
        )

    def _columns_of(self, variant: Variant, records: pa.RecordBatch) -> list[list[Any]]:
        columns = []
        for name, kind in variant.fields.items():
            at = records.schema.get_field_index(name)
            column = from_array(records.column(at), kind) if at >= 0 else [None] * records.num_rows
            columns.append(column)
        return columns
