"""Entries that describe themselves.

Every entry holds its own index, the number of the append that made it (its *generation*, never used twice),
and bytes that follow from both. So a wrong, moved, stale or mixed-up entry gives itself away.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pyarrow as pa

from headrace.log import Batch

SCHEMA = pa.schema(
    [
        pa.field("index", pa.int64()),
        pa.field("generation", pa.int64()),
        pa.field("key", pa.int64()),
        pa.field("payload", pa.binary()),
        pa.field("blob", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Entry:
    """All that there is to say of an entry: the rest follows."""

    index: int
    generation: int
    key: int
    size: int

    def row(self) -> dict[str, object]:
        seed = f"{self.index}/{self.generation}/{self.key}/{self.size}".encode()
        payload = hashlib.shake_128(seed).digest(self.size)
        return {
            "index": self.index,
            "generation": self.generation,
            "key": self.key,
            "payload": payload,
            "blob": payload[::-1],
        }


def batch_of(entries: list[Entry]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([entry.row() for entry in entries], schema=SCHEMA)


def entry_of(row: dict[str, object], index: int) -> Entry:
    """The entry that a row read at `index` is; fails if the row is not exactly what was once appended."""
    entry = Entry(row["index"], row["generation"], row["key"], len(row["payload"]))  # type: ignore
    assert entry.index == index, f"entry {entry.index} of append {entry.generation} stands at index {index}"
    assert row == entry.row(), f"entry {index} is not what was appended"
    return entry


def entries_of(batch: Batch) -> list[Entry]:
    rows = batch.records.to_pylist()
    return [entry_of(row, batch.base_index + at) for at, row in enumerate(rows)]
