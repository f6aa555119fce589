"""Packing: a list of bytes becomes Arrow arrays that fit the processor's cache.

Records of one size, which is the usual case, are joined, and share their offsets with all others of that
size. That takes two looks at each record, one for its size and one for its bytes: `bytes.join` refuses what
has no bytes, and what has more of them than `len` says shows in the sum.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from headrace.kernel.errors import Refused

CHUNK_BYTES = 1 << 20
"""Arrays of about this size stay in the processor's cache on their way to the kernel."""


def pack(
    records: Sequence[bytes], chunk_bytes: int = CHUNK_BYTES, *, checked: bool = False
) -> Iterator[pa.Array]:
    """The records in arrays, each made when the one before is written; Refused before the first.

    `checked`: that all of them are bytes is known.
    """
    if records and (whole := _one_even(records, chunk_bytes)) is not None:
        yield whole
        return
    if not checked and list(map(type, records)).count(bytes) < len(records):
        records = [as_bytes(data) for data in records]
    at = 0
    while at < len(records):
        size = len(records[at])
        part = records[at : at + _step(size, len(records) - at, chunk_bytes)]
        if _all_have(size, part):
            yield _even(part, size, chunk_bytes)
        else:
            part = part[: max(1, chunk_bytes // (size + 4))]
            if sum(map(len, part)) > 2 * chunk_bytes:
                part = part[:1]  # sizes differ a lot: take them one by one
            yield pa.array(part, pa.binary())
        at += len(part)


def _one_even(records: Sequence[bytes], chunk_bytes: int) -> pa.Array | None:
    """The one array of all records, if they are of one size and not too many; else None."""
    try:
        size = len(records[0])
        if _step(size, len(records), chunk_bytes) == len(records) and _all_have(size, records):
            return _even(records, size, chunk_bytes)
    except (TypeError, BufferError):
        pass  # something is not bytes, but may be as good
    return None


def _all_have(size: int, records: Sequence[bytes]) -> bool:
    return list(map(len, records)).count(size) == len(records)


def _step(size: int, left: int, chunk_bytes: int) -> int:
    """How many of `left` records of one size to take, so that all arrays are about equally large.

    A small one at the end would cost as much as a large one.
    """
    return -(-left // max(1, round(left * (size + 4) / chunk_bytes)))


def _even(records: Sequence[bytes], size: int, chunk_bytes: int) -> pa.Array:
    """Records of one size; TypeError if something is larger than it says."""
    data, count = b"".join(records), len(records)
    if len(data) != count * size:
        raise TypeError("not all of them are bytes")
    offsets = _offsets(size, chunk_bytes).slice(0, (count + 1) * 4)
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(data)], 0)


def as_bytes(data: object) -> bytes:
    """A record as it is stored, or Refused."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise Refused(f"a record is bytes, not {type(data).__name__}: encode it first")


@lru_cache(maxsize=8)
def _offsets(size: int, chunk_bytes: int) -> pa.Buffer:
    """The offsets of as many records of one size as an array ever has."""
    most = 2 * chunk_bytes // (size + 4) + 1
    ends = range(0, most * size + 1, size) if size else [0] * (most + 1)
    return pa.py_buffer(array("i", ends))  # not by pa.array: its first call loads pandas if there is one
