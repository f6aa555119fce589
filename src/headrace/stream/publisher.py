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

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from headrace.kernel.errors import Fenced, HeadraceError, Refused
from headrace.log.batcher import Batcher
from headrace.log.keys import KeyColumn
from headrace.log.settings import Settings
from headrace.log.split import portions
from headrace.log.target import Target
from headrace.stream.declaration import Declaration
from headrace.stream.errors import BadEntry, DuplicateId
from headrace.stream.gather import Gathered, records_of
from headrace.stream.tables import as_table, looks_inside
from headrace.stream.taking import Room, make_taking
from headrace.stream.unique import UniqueIds, plain_ids

FLUSH_BYTES = 16 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Published:
    """Where a batch went: its entries have the indexes from `base_index` up to, not including, `next_index`.

    `duplicates` are the rows that were left out because their id is in the stream already.
    """

    base_index: int
    next_index: int
    duplicates: tuple[int, ...] = ()
    repeated: bool = False
    """It was published before, by the same producer with the same sequence number or a later one."""


class Publisher:
    publish: Callable[[Any], int]
    """Publish one entry; its index. It is durable once `durable_index` is larger, or after `flush`."""

    def __init__(
        self,
        log: Target,
        declaration: Declaration,
        *,
        strict: bool,
        unique: UniqueIds | None,
        unique_by: str | None,
        on_close: Callable[[Publisher], None],
        background: bool = True,
    ) -> None:
        """Use `Stream.publisher`."""
        self._log = log
        self._declaration = declaration
        self._unique = unique
        self._unique_by = unique_by
        self._on_close = on_close
        self._closed = False
        self._schema = log.schema
        self._columns: list[list[Any]] = [[] for _ in declaration.columns]
        self._whole = unique is None and not looks_inside(declaration)
        self._required = [at for at, field in enumerate(log.schema) if not field.nullable]
        self._key = KeyColumn(log.schema, declaration.order_by) if declaration.order_by else None
        containers = log.settings.containers
        self._portion_bytes = containers.portion_bytes if containers else None
        self._batcher = Batcher(log, self._columns, self._to_batches, linger_s=0.0 if background else None)
        self._taking = make_taking(
            declaration,
            self._columns,
            self._batcher,
            room_for(log.settings, self._publish_alone),
            strict=strict,
            check_id=unique.check if unique else None,
            forget_id=unique.forget_from if unique else lambda index: None,
            unique_by=unique_by,
        )
        self._batcher.restart = self._written
        self._resume()
        self.publish = self._taking.publish

    def publish_batch(
        self, table: Any, *, once: tuple[str, int] | None = None, at: int | None = None
    ) -> Published:
        """Publish many entries at once, all or none: Arrow, pandas or polars tables, or a list of dicts.

        With unique ids, rows whose id is in the stream already are left out, and the answer says which.
        `once` = (producer, sequence) makes it safe to repeat: a batch whose sequence number is not larger
        than the last one of that producer is answered (`repeated`), not published again. `at` is the index
        that its first entry must get; Fenced, if somebody else has published meanwhile.
        """
        self._batcher.check()
        records = self._records(table)
        base = self.next_index
        if once is not None and (last := self._log.last_commit(once[0])) and once[1] <= last.sequence:
            return Published(last.base_index, last.next_index, repeated=True)
        if at is not None and at != base:
            raise Fenced(f"the next entry gets index {base}, not {at}: somebody else has published meanwhile")
        if not records.num_rows:
            return Published(base, base)
        duplicates: list[int] = []
        if self._unique is not None:
            ids = plain_ids(records.column(self._unique_by).combine_chunks())
            duplicates = self._unique.duplicates(ids, base)
            records = _without(records, duplicates)
        try:
            if once is None:
                self._batcher.append([records] if records.num_rows else [])
            else:
                commit = self._batcher.append_once([records], *once)
                if commit.repeated:  # the log is elsewhere, and knew
                    return Published(commit.base_index, commit.next_index, repeated=True)
        except HeadraceError:
            if self._unique is not None:
                self._unique.forget_from(base)
            raise
        finally:
            self._resume()
        return Published(base, base + records.num_rows, tuple(duplicates))

    def _records(self, given: Any) -> pa.RecordBatch | pa.Table:
        """What was given, in the stream's schema and checked. A batch that surely fits stays as it is."""
        if (
            self._whole
            and isinstance(given, pa.RecordBatch)
            and given.schema.equals(self._schema)
            and not any(given.column(at).null_count for at in self._required)
        ):
            return given
        return as_table(given, self._schema, self._declaration)

    def _publish_alone(self, entry: Any) -> int:
        """An entry that is large for a container: if it does not fit, it is refused here and now."""
        alone = Gathered(self._declaration, self._schema)
        alone.take(entry)
        records = alone.records()
        published = self.publish_batch(records)
        if published.duplicates and self._unique is not None:
            (found,) = self._unique.known(plain_ids(records.column(self._unique_by))).values()
            raise DuplicateId(f"the id is in the stream already, at index {found}", found)
        return published.base_index

    def known_ids(self, ids: Sequence[Any]) -> dict[Any, int]:
        """Where the entries with these unique ids are, of those that are in the stream."""
        if self._unique is None:
            raise Refused("the stream has no unique ids")
        self._batcher.write_out()
        return self._unique.known(ids)

    def lend(self, work: Callable[[Target, UniqueIds | None], T]) -> T:
        """Let something else append to the log, behind all that was published so far.

        It gets the stream's unique ids as well, and sees to them itself.
        """
        try:
            return self._batcher.lend(lambda log: work(log, self._unique))
        finally:
            self._resume()

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
        return self._batcher.upcoming

    @property
    def durable_index(self) -> int:
        """Every entry below it is safe."""
        return self._log.durable_index

    @property
    def head_key(self) -> int:
        """HEAD as 64 sortable bits; 0 if nothing is known of it."""
        return self._log.head_key

    @property
    def last_key(self) -> int | None:
        """The order key of the last entry, as sortable bits."""
        return self._log.last_key

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

    def _to_batches(self, columns: list[list[Any]]) -> Iterator[pa.RecordBatch]:
        try:
            return portions(records_of(columns, self._declaration, self._schema), self._portion_bytes)
        except MemoryError:
            raise  # there may be enough another time
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            # Entries are checked when they are published: nothing should come here.
            for column in self._columns:
                column.clear()
            raise BadEntry(
                f"{len(columns[-1])} entries cannot be stored, and are dropped: {error}"
            ) from error

    def close(self) -> None:
        """Flush, and give the stream free for the next publisher."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as closing:  # from the last to the first, each in any case
            closing.callback(self._on_close, self)
            closing.callback(self._log.close)
            if self._unique is not None:
                closing.callback(self._unique.close)
            closing.callback(self._batcher.close)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def room_for(settings: Settings, alone: Callable[[Any], int]) -> Room:
    """What a publisher gathers. A character of text may have four bytes: half a container, at most."""
    containers = settings.containers
    return Room(FLUSH_BYTES, containers.portion_bytes // 2 if containers else None, alone)


def _without(table: pa.Table, rows: list[int]) -> pa.Table:
    if not rows:
        return table
    gone = set(rows)
    return table.take(pa.array([row for row in range(table.num_rows) if row not in gone], pa.int64()))
