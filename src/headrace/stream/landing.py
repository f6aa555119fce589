"""Landing: a batch of a query becomes part of a stream, exactly once.

Each batch of a query is one atomic group of the log, committed by the writer `spark:<writer>:<query>` with
the batch's number as its sequence. Whatever happens around it, a batch that is in the log is not appended
again: the log itself knows, and the record is in the group.

The stream belongs to the query that committed last. Another one (its checkpoint was lost, or it was started
twice) is refused, because what it would append is most likely there already; with `take_over` it becomes the
owner, and the one before it can never write again. So is a query refused whose earlier batches are missing:
the stream was cut, or put back from a copy.

Whoever has the stream's log open for writing does this: a driver of Spark's, or a node for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from headrace.kernel.errors import HeadraceError, Refused
from headrace.log.keys import KeyColumn
from headrace.log.log import Log
from headrace.log.state import Commit
from headrace.stream.id_index import open_ids
from headrace.stream.unique import UniqueIds, plain_ids

UNNAMED = "spark-write"
"""The writer of all writes that have no id."""


class NotTheOwner(Refused):
    """The stream belongs to another query."""

    code = "not_the_owner"


@dataclass(frozen=True, slots=True)
class Owner:
    """In whose name batches land. `writer` tells queries apart that write to one stream."""

    stream: str
    writer: str = "default"
    take_over: bool = False

    @classmethod
    def of_write(cls, stream: str, write_id: str) -> Owner:
        """A write that can be repeated, under an id of the user's; it is batch 0 of the query `once`."""
        return cls(stream, f"write:{write_id}")

    def land(
        self,
        log: Log,
        query: str,
        batch: int,
        records: Iterable[pa.RecordBatch],
        *,
        head: int | None = None,
        ids: UniqueIds | None = None,
    ) -> Commit:
        """Append a batch of a query, unless it is there; then move HEAD, if it is to move.

        `ids` are the stream's unique ids, if whoever asks has them open.
        """
        self._check_owner(log, query, batch)
        commit = _append(log, records, Commit(f"{self._prefix}{query}", batch, 0, 0), ids)
        if head is not None and head > log.head_key:
            assert log.meta.order_by is not None
            log.head(KeyColumn(log.schema, log.meta.order_by).decode(head))
        log.sync(force=True)
        return commit

    @property
    def _prefix(self) -> str:
        return f"spark:{self.writer}:"

    def _check_owner(self, log: Log, query: str, batch: int) -> None:
        # A query's id has no colon, but names may have some.
        prefix = self._prefix.removesuffix(":")
        owners = [commit for commit in log.commits() if commit.writer.rpartition(":")[0] == prefix]
        mine = next((commit for commit in owners if commit.writer == f"{self._prefix}{query}"), None)
        if owners and owners[-1] is not mine:
            other = owners[-1].writer.removeprefix(self._prefix)
            if mine is not None:
                raise NotTheOwner(
                    f"the query {other} has taken the stream {self.stream!r} over: this one ({query}) may "
                    "not write to it any more"
                )
            if not self.take_over:
                raise NotTheOwner(
                    f"the stream {self.stream!r} is written by another query ({other}): restart that one "
                    "with its checkpoint, or, if it is lost, say takeOver=true and see that nothing is "
                    "written twice; two queries that both write here each need a 'writer' name"
                )
        last = -1 if mine is None else mine.sequence
        if batch > last + 1 and not (mine is None and self.take_over):
            raise NotTheOwner(
                f"batches {last + 1} to {batch - 1} of this query are not in the stream {self.stream!r}: it "
                "was cut, or put back from a copy; start with a new checkpointLocation, and takeOver=true"
            )


def land_unnamed(
    log: Log, records: Iterable[pa.RecordBatch], *, note: str = "", ids: UniqueIds | None = None
) -> Commit:
    """Append one write that has no id. `note` is kept with it."""
    last = log.last_commit(UNNAMED)
    commit = Commit(UNNAMED, 0 if last is None else last.sequence + 1, 0, 0, note)
    commit = _append(log, records, commit, ids)
    log.sync(force=True)
    return commit


def _append(log: Log, records: Iterable[pa.RecordBatch], commit: Commit, ids: UniqueIds | None) -> Commit:
    """All of it as one group; `commit` says in whose name."""

    def append(given: Iterable[pa.RecordBatch]) -> Commit:
        return log.append_group(iter(given), writer=commit.writer, sequence=commit.sequence, note=commit.note)

    stored = log.meta.extra.get("stream", {})
    if not stored.get("unique_by"):
        return append(records)
    with _opened_ids(log, ids) as known:
        base = log.next_index
        try:
            made = append(_without_duplicates(records, known, stored["unique_by"], base))
        except HeadraceError:
            known.forget_from(base)
            raise
        known.index_up_to(log.next_index)
        return made


@contextmanager
def _opened_ids(log: Log, ids: UniqueIds | None) -> Iterator[UniqueIds]:
    if ids is not None:
        yield ids
        return
    stored = log.meta.extra["stream"]
    opened = open_ids(log, stored["unique_by"], stored.get("unique_window"))
    try:
        yield opened
    finally:
        with suppress(Exception):
            opened.close()


def _without_duplicates(
    records: Iterable[pa.RecordBatch], ids: UniqueIds, field: str, index: int
) -> Iterable[pa.RecordBatch]:
    """The rows whose id is not in the stream yet: what `publish_batch` would take."""
    for batch in records:
        gone = set(ids.duplicates(plain_ids(batch.column(batch.schema.get_field_index(field))), index))
        if gone:
            batch = batch.take(
                pa.array([row for row in range(batch.num_rows) if row not in gone], pa.int64())
            )
        index += batch.num_rows
        if batch.num_rows:
            yield batch
