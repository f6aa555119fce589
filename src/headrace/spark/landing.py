"""Landing: what Spark made becomes part of a stream, exactly once.

Each batch of a query is one atomic group of the log, committed by the writer `spark:<writer>:<query>` with
the batch's number as its sequence. Whatever happens around it, a batch that is in the log is not appended
again: the log itself knows, and the record is in the group.

The stream belongs to the query that committed last. Another one (its checkpoint was lost, or it was started
twice) is refused, because what it would append is most likely there already; with `takeOver` it becomes the
owner, and the one before it can never write again. So is a query refused whose earlier batches are missing:
the stream was cut, or put back from a copy.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from headrace.kernel.errors import Refused, WriterTaken
from headrace.log.keys import KeyColumn
from headrace.log.log import Log
from headrace.log.state import Commit
from headrace.store import open_store
from headrace.stream.errors import PublisherTaken
from headrace.stream.unique import UniqueIds, plain_ids

_LOCK_WAIT_S = 30.0
_UNNAMED = "spark-write"


class NotTheOwner(Refused):
    """The stream belongs to another query."""

    code = "not_the_owner"


@dataclass(frozen=True, slots=True)
class Landing:
    """Where batches go, and in whose name. `writer` tells queries apart that write to one stream."""

    path: str
    stream: str
    writer: str = "default"
    take_over: bool = False

    def land(
        self, query: str, batch: int, records: Iterable[pa.RecordBatch], *, head: int | None = None
    ) -> Commit:
        """Append a batch of a query, unless it is there; then move HEAD, if it is to move."""
        with self._opened() as log:
            self._check_owner(log, query, batch)
            commit = _append(log, records, f"{self._prefix}{query}", batch)
            if head is not None and head > log.head_key:
                assert log.meta.order_by is not None
                log.head(KeyColumn(log.schema, log.meta.order_by).decode(head))
            log.sync(force=True)
            return commit

    def land_once(self, records: Iterable[pa.RecordBatch]) -> Commit:
        """Append one write that nobody will repeat."""
        with self._opened() as log:
            last = log.last_commit(_UNNAMED)
            commit = _append(log, records, _UNNAMED, 0 if last is None else last.sequence + 1)
            log.sync(force=True)
            return commit

    @contextmanager
    def _opened(self) -> Iterator[Log]:
        """The stream's log, for writing; another driver may hold it for a moment."""
        with open_store(self.path) as store, store.stream(self.stream) as stream:
            deadline = time.monotonic() + _LOCK_WAIT_S
            while True:
                try:
                    log = Log.open(stream.log.path)
                    break
                except WriterTaken as error:
                    if time.monotonic() >= deadline:
                        raise PublisherTaken(
                            f"stream {self.stream!r} has a publisher already: close it first ({error})"
                        ) from error
                    time.sleep(0.1)
            with log:
                yield log

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


def _append(log: Log, records: Iterable[pa.RecordBatch], writer: str, sequence: int) -> Commit:
    stored = log.meta.extra.get("stream", {})
    if not stored.get("unique_by"):
        return log.append_group(iter(records), writer=writer, sequence=sequence)
    ids = UniqueIds(log, stored["unique_by"], stored.get("unique_window"))
    try:
        kept = _without_duplicates(records, ids, stored["unique_by"], log.next_index)
        commit = log.append_group(kept, writer=writer, sequence=sequence)
        ids.index_up_to(log.next_index)
        return commit
    finally:
        with suppress(Exception):
            ids.close()


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
