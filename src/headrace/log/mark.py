"""The mark: 64 bytes that tell other processes how far the log reaches.

     0  4  magic "hrm1"             8  8  first index kept       32  4  epoch
     4  4  checksum of 8..63       16  8  next index             36  4  flags: 1 closed cleanly,
                                   24  8  durable index                        2 a sync failed
                                   40  8  HEAD                   48  8  HEAD that is durable

Written with one small `pwrite` after each append and each sync, never synced itself. It is a hint, and
what is built on it is safe for that reason:

- readers are woken by its changes, then look at the segments, which are the truth;
- the durable index is written only after the sync it tells of. So if a log's segments end *before* the
  durable index, entries that were safe have disappeared (somebody cut or removed a file at a frame's
  edge, where no checksum can tell), and opening says so;
- "a sync failed" makes the next writer write the doubtful tail again before it believes it.

A mark that does not match its checksum says nothing, and is written anew.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path

import xxhash

from headrace.kernel.errors import NotFound
from headrace.log.disk import Disk, File

MARK_FILE = "mark"
_MAGIC = b"hrm1"
_RECORD = struct.Struct("<4sIQQQIIQQ8x")
_FIELDS = struct.Struct("<QQQIIQQ8x")
_SEAL = struct.Struct("<4sI")
_CLEAN, _SUSPECT = 1, 2


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a log reaches, as its writer last said."""

    base_index: int = 0
    next_index: int = 0
    durable_index: int = 0
    epoch: int = 0
    head_key: int = 0
    durable_head: int = 0
    """HEAD as it stood when the last sync began: no power cut takes it back."""
    clean: bool = False
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """What stays, whatever happens: the entries below `next_index`, and HEAD (sortable)."""

    next_index: int
    head_key: int


class Mark:
    def __init__(self, file: File | None) -> None:
        self._file = file

    @classmethod
    def open(cls, disk: Disk, directory: Path, *, write: bool) -> Mark:
        """The mark of a log. One that is not there is made by a writer, and says nothing to a reader."""
        try:
            return cls(disk.open(directory / MARK_FILE, write=write, create=write))
        except NotFound:
            return cls(None)

    def write(self, at: Extent) -> None:
        flags = (_CLEAN if at.clean else 0) | (_SUSPECT if at.suspect else 0)
        heads = at.head_key, at.durable_head
        self.write_fields(at.base_index, at.next_index, at.durable_index, at.epoch, *heads, flags)

    def write_fields(
        self,
        base_index: int,
        next_index: int,
        durable: int,
        epoch: int,
        head: int,
        durable_head: int,
        flags: int = 0,
    ) -> None:
        """The same without an Extent, for every append and every sync."""
        fields = _FIELDS.pack(base_index, next_index, durable, epoch, flags, head, durable_head)
        assert self._file is not None
        seal = xxhash.xxh3_64_intdigest(fields) & 0xFFFFFFFF
        self._file.write_one(_SEAL.pack(_MAGIC, seal) + fields, 0)

    def read(self) -> Extent | None:
        """What the mark says, or None if it says nothing that can be believed."""
        if self._file is None:
            return None
        for _ in range(3):  # a reader may catch a write half done: look again
            raw = self._file.read(_RECORD.size, 0)
            if len(raw) == _RECORD.size:
                magic, seal, base, next_index, durable, epoch, flags, *heads = _RECORD.unpack(raw)
                if magic == _MAGIC and seal == xxhash.xxh3_64_intdigest(raw[8:]) & 0xFFFFFFFF:
                    clean, suspect = bool(flags & _CLEAN), bool(flags & _SUSPECT)
                    return Extent(base, next_index, durable, epoch, heads[0], heads[1], clean, suspect)
        return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def believable(extent: Extent | None, active_epoch: int) -> Extent | None:
    """A mark from before a truncation says nothing: what it calls durable may have been cut since."""
    return None if extent is None or extent.epoch < active_epoch else extent


def carry_mark(disk: Disk, directory: Path, active_epoch: int, epoch: int) -> None:
    """Let the mark go along to an epoch that is about to begin: else it would stop being believable.

    What it says of `active_epoch` still holds then. A mark that is older than that stays behind.
    """
    extent = believable(read_extent(disk, directory), active_epoch)
    if extent is not None and extent.epoch < epoch:
        mark = Mark.open(disk, directory, write=True)
        try:
            mark.write(replace(extent, epoch=epoch))
        finally:
            mark.close()


def read_extent(disk: Disk, directory: Path) -> Extent | None:
    """What the mark of a log says now."""
    mark = Mark.open(disk, directory, write=False)
    try:
        return mark.read()
    finally:
        mark.close()
