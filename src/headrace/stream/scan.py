"""Scanning: the batches and HEADs of a stream between two places, as listeners of all kinds read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from headrace.log.body import BodyDecoder
from headrace.log.cursor import Cursor, OnDamage
from headrace.log.keys import KeyColumn
from headrace.log.log import Log
from headrace.log.segment_reader import Batch
from headrace.log.segment_reader import Head as LogHead
from headrace.stream.evolve import check_still_one_class, through
from headrace.stream.places import Limit, Place, limit_of, start_index
from headrace.stream.record import TAG


class Scanning(Protocol):
    """Batches and HEADs between two places. `next` answers None when there is nothing yet."""

    done: bool

    @property
    def index(self) -> int: ...

    @property
    def stopped(self) -> bool: ...

    def next(self) -> Batch | LogHead | None: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


class Scan:
    """A cursor with an end. `next` answers None when there is nothing yet, and `done` once it is over."""

    def __init__(
        self,
        log: Log,
        schema: pa.Schema,
        start: Place,
        until: Place,
        *,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> None:
        """`schema` is what the reader wants to see: the stream may have grown since, or not yet."""
        order_by = log.meta.order_by
        self._limit: Limit = limit_of(log, until)
        self._extra: str | None = None
        if columns is not None and self._limit.key is not None and order_by and order_by not in columns:
            self._extra = order_by  # needed to know where to stop; not shown
        wanted = None if columns is None else [*columns, *([self._extra] if self._extra else [])]
        self._one_class = columns is None and TAG not in schema.names
        self._schema = schema if columns is None else BodyDecoder(schema, columns).schema
        self._read_schema = schema if wanted is None else BodyDecoder(schema, wanted).schema
        by_key = order_by is not None and self._limit.key is not None
        self._key = KeyColumn(self._read_schema, order_by) if by_key and order_by else None
        if wanted is not None and not set(wanted) <= set(log.schema.names):
            wanted = None  # some are not known to the log as it was opened: take all, choose later
        self._cursor: Cursor = log.cursor(start_index(log, start), columns=wanted, on_damage=on_damage)
        self.done = self._limit.index is not None and self._cursor.index >= self._limit.index

    @property
    def schema(self) -> pa.Schema:
        """Of the batches that it answers."""
        return self._schema

    @property
    def index(self) -> int:
        return self._cursor.index

    @property
    def until(self) -> int | None:
        """The index it ends before, if it ends at one."""
        return self._limit.index

    def next(self) -> Batch | LogHead | None:
        if self.done:
            return None
        item = self._cursor.next()
        if isinstance(item, LogHead):
            self.done = self._limit.key is not None and item.key >= self._limit.key
            return item
        if item is None:
            return None
        if self._one_class:
            check_still_one_class(item.records)
        return self._limited(self._through(item, self._read_schema))

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until there may be more; False when the time came first, or this was stopped."""
        return self._cursor.wait(timeout) and not self._cursor.stopped

    def stop(self) -> None:
        self._cursor.stop()

    @property
    def stopped(self) -> bool:
        return self._cursor.stopped

    def close(self) -> None:
        self._cursor.close()

    def _limited(self, batch: Batch) -> Batch | None:
        """The batch up to the limit; None if nothing of it is left."""
        stop = batch.next_index
        limit = self._limit
        if limit.index is not None and stop >= limit.index:
            stop, self.done = limit.index, True
        if limit.key is not None and batch.last_key >= limit.key:
            if self._key is None:
                stop = min(stop, limit.key)  # ordered by index: the key is the index
            else:
                stop = min(stop, batch.base_index + self._key.find(batch.records, limit.key))
            self.done = True
        if self._extra:
            batch = self._through(batch, self._schema)
        return (
            batch
            if stop >= batch.next_index
            else batch.slice(batch.base_index, stop)
            if stop > batch.base_index
            else None
        )

    @staticmethod
    def _through(batch: Batch, schema: pa.Schema) -> Batch:
        records = through(batch.records, schema)
        if records is batch.records:
            return batch
        return Batch(batch.base_index, records, batch.first_key, batch.last_key, batch.time_us, batch.epoch)
