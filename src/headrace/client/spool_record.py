"""Records of a spool: how a request lies in an hourly file, and how it is found again. docs/formats/spool.md.

     0  4  magic     "hrs1"
     4  1  state     "w" waits to be sent, "e" erased: the server has it
     5  3            zero
     8  4  length    of the request, little endian
    12  8  checksum  xxh3_64 over bytes 8..11 and the request; the seed is the number in the file's name
    20  n  request   as FJ has it, with identifier 0

A record is valid if and only if the magic is there, all of it is in the file, and the checksum matches. The
state is outside the sum, because it is overwritten in place.

Many processes append at once, each record by one write, so that records never mix. A crash, or a full disk,
leaves a torn one. What is torn for good cannot be told from what is still being written until a valid
record follows, or nobody writes to the file any more.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import xxhash

MAGIC = b"hrs1"
WAITING, ERASED = b"w", b"e"
STATE_OFFSET = 4
HEADER = struct.Struct("<4sc3xIQ")
RECORD_BYTES_MAX = 1 << 28
"""A header that tells of more is no header."""
_LENGTH = struct.Struct("<I")


class Record(NamedTuple):
    offset: int
    size: int
    """Of the whole record."""
    waiting: bool
    request: bytes


class Gap(NamedTuple):
    """Bytes that are no record, between records."""

    offset: int
    size: int


class Scan(NamedTuple):
    """Either records or a gap; or neither, if what comes next is not whole, or not there yet."""

    records: list[Record]
    gap: Gap | None
    end: int
    """Behind them."""


def encode_record(request: bytes, hour: int) -> bytes:
    length = len(request)
    return HEADER.pack(MAGIC, WAITING, length, _sum(length, request, hour)) + request


def scan(data: bytes, hour: int, start: int = 0, *, most: int = 1 << 30, at_end: bool = True) -> Scan:
    """Up to `most` records of `data`, which is the file from `start` on, up to its end or not."""
    records: list[Record] = []
    at = 0
    while at < len(data) and len(records) < most:
        record = _record_at(data, at, hour)
        if record is None or _reaches_into_another(data, record, hour):
            break
        records.append(record._replace(offset=start + at))
        at += record.size
    if records or at == len(data) or (not at_end and at + claimed(data) > len(data)):
        return Scan(records, None, start + at)
    after = _next_record(data, 1, hour)
    return Scan([], None, start) if after is None else Scan([], Gap(start, after), start + after)


def claimed(data: bytes) -> int:
    """How many bytes the record at the start of `data` has, as its header says; 0 if that is no header."""
    if len(data) < HEADER.size or data[:4] != MAGIC:
        return 0
    size = int(HEADER.size + HEADER.unpack_from(data)[2])
    return size if size <= RECORD_BYTES_MAX else 0


def _record_at(data: bytes, at: int, hour: int) -> Record | None:
    start = at + HEADER.size
    if start > len(data):
        return None
    magic, state, length, checksum = HEADER.unpack_from(data, at)
    if magic != MAGIC or start + length > len(data):
        return None
    request = data[start : start + length]
    if _sum(length, request, hour) != checksum:
        return None
    return Record(at, HEADER.size + length, state != ERASED, request)


def _reaches_into_another(data: bytes, record: Record, hour: int) -> bool:
    """Whether its last bytes are the first of another: it was torn there, and only seems to be whole."""
    end = record.offset + record.size
    at = record.offset
    while (at := data.find(MAGIC, at + 1, end + len(MAGIC) - 1)) >= 0:
        other = _record_at(data, at, hour)
        if other is not None and at < end < at + other.size:
            return True
    return False


def _next_record(data: bytes, at: int, hour: int) -> int | None:
    while (at := data.find(MAGIC, at)) >= 0:
        if _record_at(data, at, hour) is not None:
            return at
        at += 1
    return None


def _sum(length: int, request: bytes, hour: int) -> int:
    return xxhash.xxh3_64_intdigest(_LENGTH.pack(length) + request, seed=hour)
