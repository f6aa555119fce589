"""What a blocking publisher appends to when its stream is on a node: a `Target` whose batches travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.client.carrier import Carrier
from headrace.client.conduits import drive
from headrace.client.loop_thread import LoopThread
from headrace.log.settings import Settings
from headrace.log.state import Commit


class RemoteTarget:
    """Every append is durable on the node when it returns, so there is nothing left to sync.

    Batches go over conduits of the thread that appends.
    """

    def __init__(self, loop: LoopThread, carrier: Carrier) -> None:
        self._loop = loop
        self._carrier = carrier

    @property
    def path(self) -> str:
        return self._carrier.where

    @property
    def schema(self) -> pa.Schema:
        return self._carrier.meta.schema

    @property
    def settings(self) -> Settings:
        return self._carrier.meta.settings

    @property
    def next_index(self) -> int:
        return self._carrier.next_index

    @property
    def durable_index(self) -> int:
        return self._carrier.next_index

    @property
    def head_key(self) -> int:
        return self._carrier.head_key

    @property
    def last_key(self) -> int | None:
        return self._carrier.last_key

    def append(self, records: pa.RecordBatch | pa.Table) -> int:
        return drive(self._carrier.append(records)).base_index

    def append_group(
        self, records: Sequence[pa.RecordBatch | pa.Table], *, writer: str, sequence: int
    ) -> Commit:
        (table,) = records
        done = self._loop.run(self._carrier.append_once(table, (writer, sequence)))
        return Commit(writer, sequence, done.base_index, done.next_index, repeated=done.repeated)

    def last_commit(self, writer: str) -> Commit | None:
        """The node knows, and says so when the batch comes."""
        return None

    def head(self, key: Any) -> None:
        drive(self._carrier.head(key))

    def sync(self) -> None:
        pass

    def close(self) -> None:
        self._loop.run(self._carrier.release())


class RemoteIds:
    """The index of a stream's unique ids, which the node keeps."""

    def __init__(self, loop: LoopThread, carrier: Carrier, kind: pa.DataType) -> None:
        self._loop = loop
        self._carrier = carrier
        self._kind = kind

    def known(self, values: Sequence[Any]) -> dict[Any, int]:
        found = self._loop.run(self._carrier.find_ids(pa.array(values, self._kind)))
        return {value: index for value, index in zip(values, found, strict=True) if index is not None}

    def add(self, pairs: Sequence[tuple[Any, int]], next_index: int) -> None:
        """It has them: they came with their entries."""

    def close(self) -> None:
        pass
