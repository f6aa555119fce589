"""Packing: a list of bytes becomes Arrow arrays that fit the processor's cache.

Records of one size, which is the usual case, share their offsets with all others of that size. What is left
to do is to see that they are of one size, and to put them behind each other.

Small ones are written as MessagePack, which takes a quarter of the time of `len` of each and a `join` of all.
There every record has a head of two bytes, which says that it is bytes, and how many:

    head of the list │ C4 size │ record │ C4 size │ record │ ...

If the first head is as expected, the second stands where it would if all were of one size; and so on. So
all are, if and only if every head is as expected and nothing is left over. Then the heads are taken out.
(Members of an Enum are as good as their values there; `msgspec.Raw` is what it says it is.)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import msgspec
import pyarrow as pa

from headrace.kernel.errors import Refused

CHUNK_BYTES = 3 << 19
"""Arrays of about this size mostly stay in the processor's cache on their way to the kernel.

What is a little smaller than 1 MiB costs the kernel more than what is larger (decision 41).
"""
_KEPT_BYTES = 16 << 20
_SMALL_BYTES = 255
"""Up to this size a head of MessagePack has two bytes."""
_encoder = msgspec.msgpack.Encoder()


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
    _keep_memory()
    at = 0
    while at < len(records):
        size = len(records[at])
        part = records[at : at + _step(size, len(records) - at, chunk_bytes)]
        even = _even(part, size, chunk_bytes)
        if even is None:
            part = part[: max(1, chunk_bytes // (size + 4))]
            if sum(map(len, part)) > 2 * chunk_bytes:
                part = part[:1]  # sizes differ a lot: take them one by one
        made = [pa.array(part, pa.binary()) if even is None else even]
        at += len(part)
        del part, even  # the records are still in the cache; and who took an array decides how long it lives
        yield made.pop()


def _one_even(records: Sequence[bytes], chunk_bytes: int) -> pa.Array | None:
    """The one array of all records, if they are of one size and not too many; else None."""
    try:
        size = len(records[0])
    except TypeError:
        return None
    if _step(size, len(records), chunk_bytes) < len(records):
        return None
    return _even(records, size, chunk_bytes)


def _step(size: int, left: int, chunk_bytes: int) -> int:
    """How many of `left` records of one size to take, so that all arrays are about equally large.

    A small one at the end would cost as much as a large one.
    """
    return -(-left // max(1, round(left * (size + 4) / chunk_bytes)))


def _even(records: Sequence[bytes], size: int, chunk_bytes: int) -> pa.Array | None:
    """The array of these records, if all of them are bytes of that size; else None."""
    count = len(records)
    data = _small(records, size) if size <= _SMALL_BYTES else _large(records, size)
    if data is None:
        return None
    offsets = _offsets(size, chunk_bytes).slice(0, (count + 1) * 4)
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(data)], 0)


def _small(records: Sequence[bytes], size: int) -> bytearray | array[int] | None:
    """The records behind each other, by way of MessagePack."""
    data, count, step = bytearray(), len(records), size + 2
    try:
        _encoder.encode_into(records, data)
    except Exception:  # whatever it is that cannot be encoded: it is not bytes
        return None
    begin = 1 if count < 1 << 4 else 3 if count < 1 << 16 else 5
    if (
        len(data) != begin + count * step
        or data[begin::step] != b"\xc4" * count
        or data[begin + 1 :: step] != bytes((size,)) * count
    ):
        return None
    del data[:begin]
    return _without_heads(data, step)


def _without_heads(data: bytearray, step: int) -> bytearray | array[int]:
    """What is left without the first two bytes of every `step`."""
    if step % 2 == 0:
        pairs = array("H", data)  # a head is one item of it, so that they go in one pass
        del pairs[:: step // 2]
        return pairs
    del data[::step]
    del data[:: step - 1]
    return data


def _large(records: Sequence[bytes], size: int) -> bytes | None:
    """The same for records among which `len` of each does not count for much."""
    try:
        if list(map(len, records)).count(size) < len(records):
            return None
        data = b"".join(records)
    except (TypeError, BufferError):  # not all of them are bytes
        return None
    return data if len(data) == len(records) * size else None


def as_bytes(data: object) -> bytes:
    """A record as it is stored, or Refused."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise Refused(f"a record is bytes, not {type(data).__name__}: encode it first")


@cache
def _keep_memory() -> None:
    """Have the process keep the memory of one chunk for the next.

    The C library gives the end of its heap back to the kernel as soon as twice the largest block that was
    ever freed is unused there, and then every page of the next chunk has to come back: that is a third of
    what a chunk costs. From one larger block it learns to keep more; no page of that one is ever touched.
    """
    bytes(_KEPT_BYTES)


@lru_cache(maxsize=8)
def _offsets(size: int, chunk_bytes: int) -> pa.Buffer:
    """The offsets of as many records of one size as an array ever has."""
    most = 2 * chunk_bytes // (size + 4) + 1
    ends = range(0, most * size + 1, size) if size else [0] * (most + 1)
    return pa.py_buffer(array("i", ends))  # not by pa.array: its first call loads pandas if there is one
