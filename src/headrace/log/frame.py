"""Frames: what a segment is made of, and how each is told from garbage.

A segment is a row of frames, each a 64-byte header and a body padded with zeros to 64 bytes. All
numbers are little endian.

     0  4  magic "hrf1"                 32  4  entries in it (0 unless a batch)
     4  4  header checksum              36  4  body bytes, a multiple of 64
     8  8  body checksum (xxh3_64)      40  8  first order key      56  4  epoch
    16  8  base index                   48  8  last order key       60  4  flags
    24  8  append time, µs

Flags: bits 0-3 the kind, bit 8 "belongs to a group", bit 9 "stored by columns", bits 16-31 of a batch a
tag of the schema it was written with (so that no batch is ever read through the wrong one).

The header checksum is the low half of xxh3_64 over bytes 8..63, seeded with the log's salt. A header is
valid if and only if the magic and that checksum match; a frame is valid if and only if its header is,
all of its body is there, and the body checksum matches. Because the header checksum covers the body
checksum, header damage is told from body damage.

Why a salt: after damage a reader looks for the next header; entries may hold copies of other logs'
segments, and those must not pass. Why the index is inside the sum: a frame copied to another place
must fail, and in a recycled container a frame of an earlier life has an index that is too small.
Why the epoch never decreases: frames left behind by a truncated or fenced past must not come back.

What `base index`, `first key` and `last key` say, by kind:

    batch     index of the first entry; order keys of the first and the last entry
    head      next index; both keys = the order key up to which no more entries will come
    commit    next index; ends a group of batches that are visible together; body = its note
    base      next index; first key = the first index that is kept, entries below are trimmed
    gap       first lost index; first key = the same, last key = the first index after the loss
    start     first index of the segment; opens it; body = the log's meta and what it carries over
    footer    next index; body = the table of the segment's batches
    trailer   next index; first key = the footer's offset; the last 64 bytes of a finalized segment
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import xxhash

MAGIC = b"hrf1"
HEADER_BYTES = 64
_SEAL = struct.Struct("<4sI")
_SEALED = struct.Struct("<QQqIIQQII")
_KIND_MASK = 0x0F
_GROUPED = 0x100
_COLUMNS = 0x200
_ZEROS = bytes(HEADER_BYTES)
START_SALT = 0
"""Start frames are sealed without the salt: they are what tells it when meta.json is lost."""


class Kind(IntEnum):
    BATCH = 0
    HEAD = 1
    COMMIT = 2
    BASE = 3
    GAP = 4
    START = 5
    FOOTER = 6
    TRAILER = 7


BATCH, GAP, START = map(int, (Kind.BATCH, Kind.GAP, Kind.START))
"""Plain numbers, for what is done with every frame: looking up a member of an enum is slow."""


class Header(NamedTuple):
    """A frame's header as values. A named tuple: thousands are made a second while scanning."""

    kind: int
    base_index: int
    entries: int = 0
    first_key: int = 0
    last_key: int = 0
    time_us: int = 0
    epoch: int = 0
    body_bytes: int = 0
    body_sum: int = 0
    marks: int = 0

    @property
    def frame_bytes(self) -> int:
        return HEADER_BYTES + self.body_bytes

    @property
    def next_index(self) -> int:
        """The index that the frame after this one must have."""
        if self.kind == BATCH:
            return self.base_index + self.entries
        return self.last_key if self.kind == GAP else self.base_index

    @property
    def grouped(self) -> bool:
        """Whether this batch is visible only once the group's commit follows."""
        return bool(self.marks & _GROUPED)

    @property
    def schema_tag(self) -> int:
        return self.marks >> 16

    @property
    def by_columns(self) -> bool:
        """Whether the body is stored column by column, each with its own checksum."""
        return bool(self.marks & _COLUMNS)


def marks(*, grouped: bool = False, by_columns: bool = False, schema_tag: int = 0) -> int:
    return (_GROUPED if grouped else 0) | (_COLUMNS if by_columns else 0) | schema_tag << 16


def checksum(body: object) -> int:
    return xxhash.xxh3_64_intdigest(body)  # type: ignore[arg-type]


def encode_header(header: Header, salt: int) -> bytes:
    kind, base, entries, first, last, time_us, epoch, body_bytes, body_sum, marks_ = header
    sealed = _SEALED.pack(body_sum, base, time_us, entries, body_bytes, first, last, epoch, kind | marks_)
    return _SEAL.pack(MAGIC, _seal(sealed, kind, salt)) + sealed


def decode_header(raw: bytes, salt: int) -> Header | None:
    """The header in these 64 bytes, or None if they are not a valid one."""
    if len(raw) < HEADER_BYTES or raw[:4] != MAGIC:
        return None
    sealed = raw[8:HEADER_BYTES]
    body_sum, base, time_us, count, body_bytes, first, last, epoch, flags = _SEALED.unpack(sealed)
    kind = flags & _KIND_MASK
    if (
        _SEAL.unpack_from(raw)[1] != _seal(sealed, kind, salt)
        or kind > Kind.TRAILER
        or body_bytes % HEADER_BYTES
    ):
        return None
    return Header(kind, base, count, first, last, time_us, epoch, body_bytes, body_sum, flags & ~_KIND_MASK)


def _seal(sealed: bytes, kind: int, salt: int) -> int:
    return xxhash.xxh3_64_intdigest(sealed, START_SALT if kind == START else salt) & 0xFFFFFFFF


def padding(size: int) -> bytes:
    """The zeros that bring `size` bytes up to a whole number of 64."""
    return _ZEROS[: -size % HEADER_BYTES]


def encode_frame(header: Header, body: bytes, salt: int) -> bytes:
    """A whole small frame with its body padded and summed."""
    body += padding(len(body))
    header = header._replace(body_bytes=len(body), body_sum=checksum(body))
    return encode_header(header, salt) + body
