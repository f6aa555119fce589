"""Positions: where named readers are, kept on disk beside the log.

`positions/<name>` holds two slots of 32 bytes, written in turn, so that a torn write leaves the other:

    0  4  magic "hrp1"     4  4  checksum of 8..31     8  8  number of the write     16  8  index

The valid slot with the larger number counts. The file is locked while its reader has it open: a name is
one reader at a time.
"""

from __future__ import annotations

import struct
from pathlib import Path

import xxhash

from headrace.kernel.errors import WriterTaken
from headrace.kernel.names import checked_name
from headrace.log.disk import Disk, File

POSITIONS_DIRECTORY = "positions"
_MAGIC = b"hrp1"
_SLOT = struct.Struct("<4sIQQ8x")


class PositionFile:
    """The position of one named reader."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._number, self.index = _newest(file)

    @classmethod
    def open(cls, disk: Disk, directory: Path, name: str) -> PositionFile:
        folder = directory / POSITIONS_DIRECTORY
        path = folder / checked_name(name, "position name")
        if not folder.exists():
            disk.make_directory(folder)
            disk.sync_dir(directory)
        is_new = not path.exists()
        file = disk.open(path, write=True, create=True)
        if not file.try_lock():
            file.close()
            raise WriterTaken(
                f"the position {name!r} of {directory} is in use by another reader: close it first"
            )
        if is_new:
            disk.sync_dir(folder)
        return cls(file)

    def save(self, index: int, *, sync: bool = True) -> None:
        """Remember `index`; with `sync` it is on the disk when this returns."""
        self._number += 1
        raw = bytearray(_SLOT.pack(_MAGIC, 0, self._number, index))
        struct.pack_into("<I", raw, 4, _seal(raw))
        self._file.write([raw], self._number % 2 * _SLOT.size)
        if sync:
            self._file.sync()
        self.index = index

    def close(self) -> None:
        self._file.close()


def read_positions(disk: Disk, directory: Path) -> dict[str, int]:
    """All named positions of a log."""
    folder = directory / POSITIONS_DIRECTORY
    if not folder.is_dir():
        return {}
    positions = {}
    for name in disk.names(folder):
        if (folder / name).is_file():
            with disk.opened(folder / name) as file:
                positions[name] = _newest(file)[1]
    return positions


def smallest_position(disk: Disk, directory: Path) -> int | None:
    """What every named reader has passed; None if there is none."""
    return min(read_positions(disk, directory).values(), default=None)


def _newest(file: File) -> tuple[int, int]:
    slots = []
    for at in (0, _SLOT.size):
        raw = file.read(_SLOT.size, at)
        if len(raw) == _SLOT.size:
            magic, seal, number, index = _SLOT.unpack(raw)
            if magic == _MAGIC and seal == _seal(raw):
                slots.append((number, index))
    return max(slots, default=(0, 0))


def _seal(raw: bytes | bytearray) -> int:
    return xxhash.xxh3_64_intdigest(raw[8:]) & 0xFFFFFFFF
