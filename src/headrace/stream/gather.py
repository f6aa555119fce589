"""Gathering: entries of a declared type as record batches, without a publisher.

    gathered = Gathered(declaration, schema)
    gathered.take(Order(...))
    gathered.records()

Entries are checked as `publish` checks them. For those who make entries elsewhere than where they are
appended, such as Spark's workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.stream.columns import to_array
from headrace.stream.declaration import Declaration
from headrace.stream.evolve import through
from headrace.stream.taking import Room, make_taking

_NEVER = 1 << 62


class Gathered:
    take: Callable[[Any], int]
    """Take one entry; how many were taken before it."""

    def __init__(self, declaration: Declaration, schema: pa.Schema) -> None:
        self._declaration = declaration
        self._schema = schema
        self._columns: list[list[Any]] = [[] for _ in declaration.columns]
        taking = make_taking(declaration, self._columns, _Nobody(), Room(_NEVER), strict=False)
        taking.resume(0, None, False)
        self.take = taking.publish

    def records(self) -> pa.RecordBatch:
        """What was taken since the last call, as a batch of the stream's schema."""
        made = records_of(self._columns, self._declaration, self._schema)
        for column in self._columns:
            column.clear()
        return made


def records_of(columns: Sequence[list[Any]], declaration: Declaration, schema: pa.Schema) -> pa.RecordBatch:
    """Lists of plain values, one for each declared column, as a batch; what is not declared is null."""
    kinds = declaration.columns.values()
    arrays = [to_array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return through(pa.RecordBatch.from_arrays(arrays, schema=declaration.schema), schema)


class _Nobody:
    """Stands where a publisher has its batcher: nothing is written here, so nothing is woken or flushed."""

    idle = False

    def wake(self) -> None: ...

    def overflow(self) -> None: ...

    def take_back(self) -> bool:
        return False

    def mend(self, index: int) -> bool:
        return True  # who is interrupted gives up all that was gathered
