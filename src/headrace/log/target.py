"""Targets: what batches are appended to. A log is one; a stream that a node keeps is another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from headrace.log.settings import Settings
from headrace.log.state import Commit


class Target(Protocol):
    """Appended to by one writer. What is below `durable_index` is safe."""

    @property
    def path(self) -> object:
        """What errors call it."""
        ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def next_index(self) -> int: ...

    @property
    def durable_index(self) -> int: ...

    @property
    def head_key(self) -> int:
        """HEAD as 64 sortable bits; 0 if nothing is known."""
        ...

    @property
    def last_key(self) -> int | None:
        """The order key of the last entry, sortable."""
        ...

    def append(self, records: pa.RecordBatch | pa.Table) -> int: ...

    def append_group(
        self, records: Sequence[pa.RecordBatch | pa.Table], *, writer: str, sequence: int
    ) -> Commit: ...

    def last_commit(self, writer: str) -> Commit | None: ...

    def head(self, key: Any) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...
