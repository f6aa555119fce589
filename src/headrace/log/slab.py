"""Queuefka's classic slab files: reading them in and writing them out.

A topic is a directory of `<20-digit base address>.slab` files; a record is

    0  4  length, little endian: 4 + n as documented, or n as its code wrote it
    4  4  xxhash32 of the payload, seed 0
    8  n  payload

The first record of a slab tells which of the two lengths it uses: the one whose checksum matches. An address
is a byte offset over all slabs. The slab size is a hint: a new slab begins after the write that passes it.

The format cannot resync after a damaged length, so a damaged record whose length still fits is reported and
passed over, and one whose length does not ends its slab, also reported.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import xxhash

from headrace.kernel.errors import NotALog, NotFound, TooLarge
from headrace.log.disk import Disk

LengthField = Literal["4+n", "n"]
_HEADER = struct.Struct("<II")
_NAME = re.compile(r"[0-9]{20}\.slab\Z")
_PAYLOAD_BYTES_MAX = (1 << 32) - 1 - 4


@dataclass(frozen=True, slots=True)
class SlabDamage:
    """A place in a slab that could not be read."""

    file: str
    offset: int
    bytes: int
    what: str

    def __str__(self) -> str:
        return f"{self.file} at byte {self.offset}: {self.what} ({self.bytes} bytes passed over)"


def slab_names(directory: Path, disk: Disk | None = None) -> list[str]:
    """The slabs of a classic topic, in order."""
    if not directory.is_dir():
        raise NotFound(f"there is no classic topic at {directory}: it is a directory of .slab files")
    names = [name for name in (disk or Disk()).names(directory) if _NAME.match(name)]
    if not names:
        raise NotALog(f"{directory} holds no .slab files: it is not a classic Queuefka topic")
    return names


def read_slabs(
    directory: Path, on_damage: Callable[[SlabDamage], None], progress: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    """The payloads of a classic topic, in order; what cannot be read goes to `on_damage`."""
    disk = Disk()
    for name in slab_names(directory, disk):
        with disk.opened(directory / name) as file:
            size = file.size()
            data = memoryview(file.map(size)) if size else memoryview(b"")
            yield from _records(name, data, on_damage, _extra_bytes(data))
        if progress is not None:
            progress(size)


def _records(
    name: str, data: memoryview, on_damage: Callable[[SlabDamage], None], extra: int
) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        rest = len(data) - at
        if rest < _HEADER.size:
            on_damage(SlabDamage(name, at, rest, "a record's header is cut off"))
            return
        length, expected = _HEADER.unpack_from(data, at)
        size = length - extra
        if size < 0 or size > rest - _HEADER.size:
            on_damage(SlabDamage(name, at, rest, f"a record's length of {length} does not fit its slab"))
            return
        payload = data[at + _HEADER.size : at + _HEADER.size + size]
        if xxhash.xxh32_intdigest(payload) == expected:
            yield bytes(payload)
        else:
            on_damage(SlabDamage(name, at, _HEADER.size + size, "a record does not match its checksum"))
        at += _HEADER.size + size


def _extra_bytes(data: memoryview) -> int:
    """What the slab's length field counts beside the payload: 4 as documented, 0 as the code did."""
    if len(data) >= _HEADER.size:
        length, expected = _HEADER.unpack_from(data, 0)
        for extra in (4, 0):
            end = _HEADER.size + length - extra
            inside = _HEADER.size <= end <= len(data)
            if inside and xxhash.xxh32_intdigest(data[_HEADER.size : end]) == expected:
                return extra
    # The first record is damaged: take the reading under which more of the others are whole.
    return max((4, 0), key=lambda extra: sum(1 for _ in _records("", data, lambda damage: None, extra)))


def write_slabs(
    directory: Path, records: Iterable[bytes], *, slab_bytes: int = 1 << 20, length: LengthField = "4+n"
) -> int:
    """Write a classic topic of `records`; its length in bytes, which is the next address."""
    disk = Disk()
    if directory.exists() and (not directory.is_dir() or disk.names(directory)):
        raise NotALog(f"{directory} exists and is not empty: export to a new directory")
    disk.make_directory(directory)
    extra = 4 if length == "4+n" else 0
    base, slab = 0, bytearray()
    for data in records:
        if len(data) > _PAYLOAD_BYTES_MAX:
            raise TooLarge(f"a record of {len(data)} bytes: the classic format takes {_PAYLOAD_BYTES_MAX}")
        slab += _HEADER.pack(len(data) + extra, xxhash.xxh32_intdigest(data)) + data
        if len(slab) >= slab_bytes:
            _write_slab(disk, directory, base, slab)
            base, slab = base + len(slab), bytearray()
    if slab or base == 0:
        _write_slab(disk, directory, base, slab)
    disk.sync_dir(directory)
    return base + len(slab)


def _write_slab(disk: Disk, directory: Path, base: int, content: bytearray) -> None:
    with disk.opened(directory / f"{base:020d}.slab", write=True, create=True) as file:
        file.write([content], 0)
        file.sync()
