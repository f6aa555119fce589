"""Projections: which columns of a stream Spark gets, as batches of exactly the schema it expects.

Spark asks for all columns of a Python source whatever a query needs, so the choice is made here: by the
options `columns`, `withIndex` and `withKey`, or by a schema of the user's own. `_index` is an entry's index
and `_key` its order key; both are made on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.kernel.errors import SchemaMismatch
from headrace.log.segment_reader import Batch
from headrace.spark.options import Options
from headrace.spark.origin import About
from headrace.spark.types import arrow_schema, as_spark, spark_schema
from headrace.stream.declaration import KEY

INDEX = "_index"
_ROWS = 1 << 16
_BYTES = 16 << 20
_TOGETHER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Projection:
    """`names` are the columns shown, `stored` those read for them."""

    names: tuple[str, ...]
    stored: tuple[str, ...]
    order_by: str | None
    target: pa.Schema

    def batches(self, read: Iterable[Batch]) -> Iterator[pa.RecordBatch]:
        """What was read, for Spark: neither tiny, since each costs a message, nor larger than it likes."""
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in read:
            made = self._shown(batch)
            if made.nbytes >= _TOGETHER_BYTES and not waiting:
                yield from _pieces(made)
                continue
            waiting.append(made)
            rows, size = rows + made.num_rows, size + made.nbytes
            if rows >= _ROWS or size >= _TOGETHER_BYTES:
                yield from _pieces(_together(waiting))
                waiting, rows, size = [], 0, 0
        if waiting:
            yield from _pieces(_together(waiting))

    def _shown(self, batch: Batch) -> pa.RecordBatch:
        return as_spark([self._column(batch, name) for name in self.names], self.target)

    def _column(self, batch: Batch, name: str) -> pa.Array:
        if name == INDEX or (name == KEY and self.order_by is None):
            return pa.arange(batch.base_index, batch.next_index)
        stored = self.order_by if name == KEY else name
        return batch.records.column(batch.records.schema.get_field_index(stored))


def projection(about: About, options: Options, wanted: StructType | None = None) -> Projection:
    """What the options choose; `wanted` is the schema that Spark was given, by us or by the user."""
    shown = wanted.names if wanted is not None else _chosen(about, options)
    fields = [_field(about, name) for name in shown]
    stored = [_stored(about, name) for name in shown]
    needed = tuple(dict.fromkeys(name for name in stored if name is not None))
    schema = wanted if wanted is not None else spark_schema(pa.schema(fields))
    if not needed:  # `_index` alone: something must be read to count by
        needed = (about.schema.names[0],)
    return Projection(tuple(shown), needed, about.order_by, arrow_schema(schema))


def shown_schema(about: About, options: Options) -> StructType:
    """The schema that a stream has in Spark."""
    return spark_schema(pa.schema([_field(about, name) for name in _chosen(about, options)]))


def _chosen(about: About, options: Options) -> list[str]:
    names = list(options.columns) if options.columns is not None else list(about.schema.names)
    extra = [INDEX] * options.with_index + [KEY] * options.with_key
    return [*names, *(name for name in extra if name not in names)]


def _field(about: About, name: str) -> pa.Field:
    if name == INDEX:
        return pa.field(INDEX, pa.int64(), nullable=False)
    stored = _stored(about, name)
    if stored is None:  # `_key` of a stream that is ordered by its index
        return pa.field(KEY, pa.int64(), nullable=False)
    if stored not in about.schema.names:
        raise SchemaMismatch(f"the stream has no column {name!r}: it has {', '.join(about.schema.names)}")
    return about.schema.field(stored).with_name(name)


def _stored(about: About, name: str) -> str | None:
    """The stored column behind a shown one; None if it is made of the index."""
    if name == KEY and KEY not in about.schema.names:
        return about.order_by
    return None if name == INDEX else name


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    step = max(1, min(_ROWS, rows * _BYTES // max(batch.nbytes, 1)))
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
