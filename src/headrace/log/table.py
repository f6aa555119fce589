"""The table of a segment's batches: in memory while it is active, its footer once finalized.

Six unsigned 64-bit columns, one row a batch: offset, base index, count, first key, last key, append
time. The arrays grow while appending, are written as Arrow as they are, and are read back as views into
the footer; finding an index or a key is a bisection of a column.

A finalized segment ends with two frames: the footer, whose body is this table as an Arrow IPC stream,
and the trailer, the last 64 bytes of the file, which says where the footer starts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.log.disk import Disk
from headrace.log.frame import (
    HEADER_BYTES,
    Header,
    Kind,
    checksum,
    decode_header,
    encode_frame,
    encode_header,
)
from headrace.log.view import View

_COLUMNS = ("offset", "base_index", "count", "first_key", "last_key", "time_us")
_SCHEMA = pa.schema([pa.field(name, pa.uint64(), nullable=False) for name in _COLUMNS])


class BatchTable:
    """Where the batches of one segment are."""

    def __init__(self, columns: Sequence[Any] | None = None) -> None:
        made: Sequence[Any] = columns if columns is not None else [array("Q") for _ in _COLUMNS]
        self.offsets, self.bases, self.counts, self.first_keys, self.last_keys, self.times_us = made

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, header: Header) -> None:
        self.offsets.append(offset)
        self.bases.append(header.base_index)
        self.counts.append(header.entries)
        self.first_keys.append(header.first_key)
        self.last_keys.append(header.last_key)
        self.times_us.append(header.time_us)

    def cut(self, offset: int) -> None:
        """Forget the batches from `offset` on."""
        row = bisect_left(self.offsets, offset)
        for column in self._arrays():
            del column[row:]

    def row_of_index(self, index: int) -> int:
        """The row of the last batch that starts at or before `index`; -1 if none does."""
        return bisect_right(self.bases, index) - 1

    def row_of_key(self, key: int) -> int:
        """The row of the first batch whose last key is at least `key`; the length if none is."""
        return bisect_left(self.last_keys, key)

    def same_as(self, other: BatchTable) -> bool:
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return all(list(mine) == list(theirs) for mine, theirs in pairs)

    def encode(self) -> bytes:
        batch = pa.RecordBatch.from_arrays(
            [pa.Array.from_buffers(pa.uint64(), len(self), [None, pa.py_buffer(c)]) for c in self._arrays()],
            schema=_SCHEMA,
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue().to_pybytes())

    @classmethod
    def decode(cls, body: pa.Buffer) -> BatchTable:
        records = pa.ipc.open_stream(body).read_next_batch()
        return cls([memoryview(column.buffers()[1]).cast("B").cast("Q") for column in records.columns])

    def _arrays(self) -> tuple[Any, ...]:
        return self.offsets, self.bases, self.counts, self.first_keys, self.last_keys, self.times_us


def encode_ending(table: BatchTable, at: Header, offset: int, file_bytes: int | None, salt: int) -> bytes:
    """Footer and trailer for a segment whose frames end at `offset`; `at` gives index, epoch and time.

    In a container of `file_bytes` the gap between the two is zeros, so that the trailer comes last.
    """
    footer = encode_frame(at._replace(kind=Kind.FOOTER), table.encode(), salt)
    trailer = encode_header(at._replace(kind=Kind.TRAILER, first_key=offset, body_sum=checksum(b"")), salt)
    gap = 0 if file_bytes is None else file_bytes - offset - len(footer) - len(trailer)
    return footer + bytes(gap) + trailer


def ending_bytes(batches: int) -> int:
    """Room to keep for footer and trailer of a segment with so many batches."""
    return 1024 + batches * 8 * len(_COLUMNS)


def final_epoch(disk: Disk, path: Path, salt: int) -> int:
    """The epoch in which a segment was finalized, as its trailer says; 0 if that is damaged."""
    with disk.opened(path) as file:
        if file.size() < HEADER_BYTES:
            return 0
        trailer = decode_header(file.read(HEADER_BYTES, file.size() - HEADER_BYTES), salt)
    return trailer.epoch if trailer is not None and trailer.kind == Kind.TRAILER else 0


def read_footer(view: View) -> BatchTable | None:
    """The table of a finalized segment, or None if its ending is damaged (then scan)."""
    trailer = view.header(view.size - 64) if view.size >= 64 else None
    if trailer is None or trailer.kind != Kind.TRAILER or trailer.first_key >= view.size:
        return None
    footer = view.header(trailer.first_key)
    if footer is None or footer.kind != Kind.FOOTER:
        return None
    body = view.body(trailer.first_key, footer)
    if body is None or checksum(body) != footer.body_sum:
        return None
    return BatchTable.decode(body)
