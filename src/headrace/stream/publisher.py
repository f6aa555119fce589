"""The publisher: the one writer of a stream.

    with stream.publisher() as publisher:
        index = publisher.publish(entry)       # known at once; durable after flush()
        publisher.publish_batch(table)
        publisher.head(key)

Entries are written in the background, as soon as they come: while one batch is being written and synced the
next one gathers, so a lone entry is on its way within a fraction of a millisecond and a flood of them goes in
large batches. `durable_index` tells how far they are safe. A publisher is for one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.log.batcher import Batcher
from headrace.log.keys import KeyColumn
from headrace.log.log import Log
from headrace.stream.columns import to_array
from headrace.stream.declaration import Declaration
from headrace.stream.errors import BadEntry
from headrace.stream.tables import as_batches
from headrace.stream.taking import make_taking
from headrace.stream.unique import UniqueIds, plain_ids

_FLUSH_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Published:
    """Where a batch went: its entries have the indexes from `base_index` up to, not including, `next_index`.

    `duplicates` are the rows that were left out because their id is in the stream already.
    """

    base_index: int
    next_index: int
    duplicates: tuple[int, ...] = ()


class Publisher:
    publish: Callable[[Any], int]
    """Publish one entry; its index. It is durable once `durable_index` is larger, or after `flush`."""

    def __init__(
        self,
        log: Log,
        declaration: Declaration,
        unique: UniqueIds | None,
        unique_by: str | None,
        on_close: Callable[[Publisher], None],
    ) -> None:
        """Use `Stream.publisher`."""
        self._log = log
        self._declaration = declaration
        self._unique = unique
        self._unique_by = unique_by
        self._on_close = on_close
        self._schema = log.schema
        self._columns: list[list[Any]] = [[] for _ in declaration.columns]
        self._key = KeyColumn(log.schema, declaration.order_by) if declaration.order_by else None
        self._batcher = Batcher(log, self._columns, self._to_batches, linger_s=0.0)
        self._taking = make_taking(
            declaration,
            self._columns,
            self._batcher,
            _FLUSH_BYTES,
            strict=log.meta.strict,
            check_id=unique.check if unique else None,
            unique_by=unique_by,
        )
        self._batcher.restart = self._written
        self._resume()
        self.publish = self._taking.publish

    def publish_batch(self, table: Any) -> Published:
        """Publish many entries at once: an Arrow table or batch, a pandas or polars frame.

        With unique ids, rows whose id is in the stream already are left out, and the answer says which.
        """
        self._batcher.check()
        batches = as_batches(table, self._schema, self._declaration)
        if self._unique is None:
            base = self._append(batches)
            return Published(base, self._batcher.next_index)
        refused: list[int] = []
        first_row = 0
        kept = []
        index = self._batcher.next_index + self._batcher.pending
        for batch in batches:
            rows = self._unique.duplicates(plain_ids(batch.column(self._unique_by)), index)
            kept.append(_without(batch, rows))
            refused += [first_row + row for row in rows]
            first_row += batch.num_rows
            index += batch.num_rows - len(rows)
        base = self._append([batch for batch in kept if batch.num_rows])
        return Published(base, self._batcher.next_index, tuple(refused))

    def head(self, key: Any) -> None:
        """Move HEAD: time passes without an entry. No later entry may have a smaller order key."""
        self._batcher.check()
        self._batcher.write_out()
        self._log.head(key)
        self._resume()
        self._batcher.wake()

    def flush(self) -> None:
        """Return once everything published so far is durable, as the stream's durability says."""
        self._batcher.flush()

    @property
    def next_index(self) -> int:
        """The index that the next entry will get."""
        return self._batcher.next_index + self._batcher.pending

    @property
    def durable_index(self) -> int:
        """Every entry below it is safe."""
        return self._log.durable_index

    def _append(self, batches: list[pa.RecordBatch]) -> int:
        base = self._batcher.append(batches)
        self._resume()
        return base

    def _resume(self) -> None:
        """Go on from where the log stands: after a batch or a HEAD, or at the beginning."""
        head, last = self._log.head_key, self._log.last_key
        key = None
        if self._key is not None and (head or last is not None):
            key = self._key.decode(head)
        self._taking.resume(self.next_index, key, head != last)

    def _written(self) -> None:
        self._taking.restart()
        if self._unique is not None:
            self._unique.index_up_to(self._batcher.next_index)

    def _to_batches(self, columns: list[list[Any]]) -> list[pa.RecordBatch]:
        try:
            arrays = {
                name: to_array(values, kind)
                for values, (name, kind) in zip(columns, self._declaration.columns.items(), strict=True)
            }
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            # Entries are checked when they are published: nothing should come here.
            for column in self._columns:
                column.clear()
            raise BadEntry(
                f"{len(columns[-1])} entries cannot be stored, and are dropped: {error}"
            ) from error
        count = len(columns[-1])
        ordered = [
            arrays[field.name] if field.name in arrays else pa.nulls(count, field.type)
            for field in self._schema
        ]
        return [pa.RecordBatch.from_arrays(ordered, schema=self._schema)]

    def close(self) -> None:
        """Flush, and give the stream free for the next publisher."""
        try:
            self._batcher.close()
        finally:
            if self._unique is not None:
                self._unique.close()
            self._log.close()
            self._on_close(self)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _without(batch: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    if not rows:
        return batch
    gone = set(rows)
    return batch.take(pa.array([row for row in range(batch.num_rows) if row not in gone], pa.int64()))
