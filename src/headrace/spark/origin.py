"""Origins: where the batches of a stream come from.

Everything that Spark reads goes through this small face: a store's own files are one origin, a stream on a
node another (`node_origin`). Origins are sent to Spark's workers, so they hold names, not open files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headrace.kernel.errors import Damaged, NotFound, Trimmed
from headrace.log.disk import Disk
from headrace.log.keys import KeyColumn
from headrace.log.mark import Settled
from headrace.log.plan import Span, plan_spans
from headrace.log.positions import PositionFile
from headrace.log.segment_reader import Batch
from headrace.store import STORE_FILE, Store, open_store
from headrace.stream.key_text import parse_key
from headrace.stream.listening import Listening
from headrace.stream.stream import Stream


@dataclass(frozen=True, slots=True)
class About:
    """What a stream is: `id` tells it from another of the same name."""

    id: str
    schema: pa.Schema
    order_by: str | None


class Position(Protocol):
    """A named position of which this is the one reader, until it is closed."""

    def save(self, index: int) -> None: ...

    def close(self) -> None: ...


class Origin(Protocol):
    @property
    def name(self) -> str: ...

    def about(self) -> About: ...

    def first_index(self) -> int:
        """The oldest entry that is kept."""
        ...

    def settled(self) -> Settled:
        """How far the stream reaches that no power cut can take back."""
        ...

    def index_of(self, key: str | int) -> int:
        """The first index whose order key is at least `key`: as text, or as its 64 sortable bits."""
        ...

    def key_at(self, index: int) -> int:
        """The order key of the entry with this index, as sortable bits."""
        ...

    def epoch_at(self, index: int) -> int:
        """The epoch in which the entry with this index was written: another one, if it was written anew.

        0 if it cannot be read any more.
        """
        ...

    def plan(self, start: int, stop: int, rows: int | None) -> list[Span]:
        """The entries between two indexes, in parts to be read beside one another."""
        ...

    def read(self, span: Span, columns: Sequence[str] | None) -> Iterator[Batch]: ...

    def remember(self, position: str) -> Position:
        """The position that keeps retention from removing what was not read."""
        ...


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """A stream in a store's directory, read from its segments without copying."""

    path: str
    name: str

    def about(self) -> About:
        with self._opened() as stream:
            return About(stream.log.meta.id, stream.schema, stream.order_by)

    def first_index(self) -> int:
        with self._opened() as stream:
            return stream.log.first_index

    def settled(self) -> Settled:
        with self._opened() as stream:
            return stream.log.settled

    def index_of(self, key: str | int) -> int:
        with self._opened() as stream:
            log = stream.log
            if isinstance(key, str):
                return log.seek_key(parse_key(key, stream))
            return log.seek_sortable(key)

    def key_at(self, index: int) -> int:
        with self._opened() as stream:
            return stored_key(stream, index)

    def epoch_at(self, index: int) -> int:
        with self._opened() as stream:
            return stored_epoch(stream, index)

    def plan(self, start: int, stop: int, rows: int | None) -> list[Span]:
        with self._opened() as stream:
            return plan_spans(Disk(), stream.log.path, stream.log.meta, start, stop, rows)

    def read(self, span: Span, columns: Sequence[str] | None) -> Iterator[Batch]:
        with self._opened() as stream:
            yield from stream.listen_batches(span.start, until=span.stop, columns=columns)

    def remember(self, position: str) -> PositionFile:
        with self._opened() as stream:
            return PositionFile.open(Disk(), stream.log.path, position)

    @contextmanager
    def _opened(self) -> Iterator[Stream]:
        with existing_store(self.path) as store:
            try:
                stream = store.stream(self.name)
            except NotFound:
                there = ", ".join(store.streams()[:5]) or "none"
                raise NotFound(
                    f"there is no stream {self.name!r} in {self.path}: check the option 'stream' "
                    f"(there are: {there})"
                ) from None
            yield stream


def stored_key(stream: Listening, index: int) -> int:
    """The order key of an entry, as sortable bits."""
    assert stream.order_by is not None
    batch = next(stream.listen_batches(index, until=index + 1, columns=[stream.order_by]))
    return KeyColumn(batch.records.schema, stream.order_by).span(batch.records)[0]


def stored_epoch(stream: Listening, index: int) -> int:
    """The epoch in which an entry was written; 0 if it cannot be read any more."""
    try:
        columns = [stream.schema.names[0]]
        found = next(stream.listen_batches(index, until=index + 1, columns=columns), None)
    except (Damaged, Trimmed):
        return 0
    return 0 if found is None else found.epoch


def existing_store(path: str) -> Store:
    """The store at `path`; reading never makes one."""
    if not (Path(path) / STORE_FILE).exists():
        raise NotFound(f"there is no store at {_as_seen(path)}: check the option 'path'")
    return open_store(path)


def made_store(path: str) -> Store:
    """The store at `path`, made if it is not there; but not somewhere by accident."""
    return open_store(path) if os.path.isabs(path) else existing_store(path)


def _as_seen(path: str) -> str:
    """A relative path is looked up where Spark was started, which need not be where the program is."""
    return path if os.path.isabs(path) else f"{path!r} as seen from {os.getcwd()}, where Spark was started"
