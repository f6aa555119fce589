"""Packing: a list of bytes becomes Arrow arrays that fit the processor's cache.

Records of one size, which is the usual case, are copied by `struct`: it looks at the type of each on the way,
so that only their sizes need a pass of their own, and it writes into a buffer that is used again and again.
`bytes.join` makes a new object each time, whose pages the kernel has to hand out and clear.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from headrace.kernel.errors import Refused

CHUNK_BYTES = 1 << 20
"""Arrays of about this size stay in the processor's cache on their way to the kernel."""
_BLOCK = 256
"""So many records are given to `struct` at a time."""


class Packing:
    """`reuse`: an array is not needed any more when the next one is asked for."""

    def __init__(self, chunk_bytes: int, *, reuse: bool) -> None:
        self._chunk_bytes = chunk_bytes
        self._reuse = reuse
        self._buffer = bytearray()

    def arrays(self, records: Sequence[bytes]) -> Iterator[pa.Array]:
        """The records in arrays, each made when the one before is written; Refused before the first."""
        whole = self._one_even(records)
        if whole is not None:
            yield whole
            return
        if list(map(type, records)).count(bytes) < len(records):
            records = [as_bytes(data) for data in records]
        yield from self._several(records, list(map(len, records)))

    def _one_even(self, records: Sequence[bytes]) -> pa.Array | None:
        """The one array of all records, if they are bytes of one size and not too many; else None."""
        try:
            sizes = list(map(len, records))
            if (
                not sizes
                or sizes.count(sizes[0]) < len(sizes)
                or self._step(sizes[0], len(sizes)) < len(sizes)
            ):
                return None
            return self._even(records, sizes[0])
        except (TypeError, struct.error):
            return None  # something is not bytes, but may be as good

    def _several(self, records: Sequence[bytes], sizes: list[int]) -> Iterator[pa.Array]:
        at = 0
        while at < len(records):
            size = sizes[at]
            step = self._step(size, len(records) - at)
            part, own = records[at : at + step], sizes[at : at + step]
            if own.count(size) == len(own):
                yield self._even(part, size)
            else:
                part = part[: max(1, self._chunk_bytes // (size + 4))]
                if sum(map(len, part)) > 2 * self._chunk_bytes:
                    part = part[:1]  # sizes differ a lot: take them one by one
                yield pa.array(part, pa.binary())
            at += len(part)

    def _step(self, size: int, left: int) -> int:
        """How many of `left` records of one size to take, so that all arrays are about equally large.

        A small one at the end would cost as much as a large one.
        """
        return -(-left // max(1, round(left * (size + 4) / self._chunk_bytes)))

    def _even(self, records: Sequence[bytes], size: int) -> pa.Array:
        """Records of one size: they share their offsets, too."""
        count = len(records)
        if count < _BLOCK:
            if list(map(type, records)).count(bytes) < count:
                raise TypeError("not all of them are bytes")
            data = pa.py_buffer(b"".join(records))
        else:
            data = self._packed(records, size)
        offsets = _offsets(size, self._chunk_bytes).slice(0, (count + 1) * 4)
        return pa.Array.from_buffers(pa.binary(), count, [None, offsets, data], 0)

    def _packed(self, records: Sequence[bytes], size: int) -> pa.Buffer:
        total = len(records) * size
        if total > len(self._buffer) or not self._reuse:
            self._buffer = bytearray(total)
        buffer, block = self._buffer, _block(size)
        pack, whole = block.pack_into, len(records) - len(records) % _BLOCK
        for at in range(0, whole, _BLOCK):
            pack(buffer, at * size, *records[at : at + _BLOCK])
        if rest := records[whole:]:
            struct.pack_into(f"{size}s" * len(rest), buffer, whole * size, *rest)
        return pa.py_buffer(buffer).slice(0, total)


def as_bytes(data: object) -> bytes:
    """A record as it is stored, or Refused."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise Refused(f"a record is bytes, not {type(data).__name__}: encode it first")


@lru_cache(maxsize=8)
def _block(size: int) -> struct.Struct:
    return struct.Struct(f"{size}s" * _BLOCK)


@lru_cache(maxsize=8)
def _offsets(size: int, chunk_bytes: int) -> pa.Buffer:
    """The offsets of as many records of one size as an array ever has."""
    most = 2 * chunk_bytes // (size + 4) + 1
    ends = range(0, most * size + 1, size) if size else [0] * (most + 1)
    return pa.array(ends, pa.int32()).buffers()[1]
