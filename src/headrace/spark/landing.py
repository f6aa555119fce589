"""Landing what Spark made in a stream of a store's directory: the driver holds its log for a moment.

How a batch becomes part of the stream exactly once is `headrace.stream.landing`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from headrace.kernel.errors import WriterTaken
from headrace.log.log import Log
from headrace.log.state import Commit
from headrace.store import open_store
from headrace.stream.errors import PublisherTaken
from headrace.stream.landing import Owner, land_unnamed

_LOCK_WAIT_S = 30.0
T = TypeVar("T")


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
        owner = Owner(self.stream, self.writer, self.take_over)
        with self._opened() as log:
            return owner.land(log, query, batch, records, head=head)

    def land_whole(self, records: Iterable[pa.RecordBatch], write_id: str | None = None) -> Commit:
        """Append one write: once, if it has an id; else nobody will repeat it."""
        with self._opened() as log:
            if write_id is None:
                return land_unnamed(log, records)
            return Owner.of_write(self.stream, write_id).land(log, "once", 0, records)

    @contextmanager
    def _opened(self) -> Iterator[Log]:
        """The stream's log, for writing; another driver may hold it for a moment."""
        with open_store(self.path) as store, store.stream(self.stream) as stream:
            try:
                log = when_free(lambda: Log.open(stream.log.path), WriterTaken)
            except WriterTaken as error:
                raise PublisherTaken(
                    f"stream {self.stream!r} has a publisher already: close it first ({error})"
                ) from error
            with log:
                yield log


def when_free(take: Callable[[], T], taken: type[WriterTaken]) -> T:
    """Take something that somebody else may have for a moment."""
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            return take()
        except taken:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)
