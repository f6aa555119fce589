"""The tail: where small events are safe before they are worth a batch in the log.

A batch of Arrow columns costs the same whether it holds one event or a thousand. So views whose events come
one by one (journals) write them here first, a few bytes each, and *pour* them into the log by thousands. The
tail is two files that take turns: one is written while the other is poured and then free again.

    a record
     0   4  magic "hrt1"
     4   4  length of the payload
     8   8  checksum: XXH3-64 of bytes 16 on, seeded with the log's salt
    16   8  index that the first event of the payload has in the log
    24   8  durable: every event below this index was safe when the record was written
    32   4  number of events
    36   4  number of the opening: each opening of the tail has one more than any before
    40  ..  payload

A record is valid if and only if its checksum matches. Records follow one another from offset 0, each with
the index at which the one before ended and with the same number; what an earlier use of the file left behind
has smaller indexes, or a smaller number, and ends the row. Only records of the last opening count. A crash
may leave the last ones in pieces, in any order if they were not synced: they are cut. But if a valid record
further on says that something missing was durable, it is damage, and is told.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import xxhash

from headrace.kernel.errors import Damaged
from headrace.log.disk import Disk, File

TAIL_FILES = ("tail-0", "tail-1")
TAIL_BYTES = 4 << 20
_PIECE_BYTES = 4096
_MAGIC = b"hrt1"
_HEADER = struct.Struct("<4sIQQQII")
_SEALED = struct.Struct("<4sIQ")
_SUMMED = struct.Struct("<QQII")
_SUMMED_FROM = 16
_PATIENCE = 16
"""Behind the end of a row so many times the bytes of a file are summed up. True ones are together no larger
than the file, but a value may hold, on purpose, the beginning of a large one at every eighth byte. Small ones
are looked at in any case."""
_SMALL_BYTES = 4096
_sealed, _summed, _digest = _SEALED.pack, _SUMMED.pack, xxhash.xxh3_64_intdigest


@dataclass(frozen=True, slots=True)
class Record:
    index: int
    durable: int
    count: int
    opening: int
    payload: bytes

    @property
    def next_index(self) -> int:
        return self.index + self.count


class Tail:
    """Both files, as their one writer sees them. Used by one thread at a time; one `sync` may run beside."""

    def __init__(self, files: list[File], salt: int, opening: int) -> None:
        self._files = files
        self._salt = salt
        self._opening = opening
        self._current = 0
        self.bytes = 0
        """What the current file holds."""
        self._capacity = [TAIL_BYTES, TAIL_BYTES]
        self._written, self._synced = [0, 0], [0, 0]

    @classmethod
    def open(cls, disk: Disk, directory: Path, salt: int) -> Tail:
        """Both files, made if need be, ready to be written from their start: see `read_tail` first."""
        opening = 1 + max((each.record.opening for each in _all(disk, directory, salt)), default=0)
        fresh = any(disk.kind(directory / name) == "nothing" for name in TAIL_FILES)
        files = [disk.open(directory / name, write=True, create=True) for name in TAIL_FILES]
        for file in files:
            if file.size() < TAIL_BYTES:
                # Written once, not only reserved: a sync then has no new blocks to record. In small pieces,
                # because the kernel keeps what was written at once together, and small writes to it are slow.
                for at in range(file.size() // _PIECE_BYTES * _PIECE_BYTES, TAIL_BYTES, _PIECE_BYTES):
                    file.write_one(bytes(_PIECE_BYTES), at)
                file.sync()
            elif file.read(len(_MAGIC), 0) == _MAGIC:
                # What is there is in the log, or lost for good: no row of it may ever be taken for a new one.
                file.write_one(bytes(_HEADER.size), 0)
                file.sync()
            if file.size() > TAIL_BYTES:  # room that was reserved, and is not needed any more
                file.truncate(TAIL_BYTES)
        if fresh:
            disk.sync_dir(directory)
        return cls(files, salt, opening)

    def write(self, payload: bytes, index: int, count: int, durable: int) -> int:
        """Add a record: safe from a crash of the process at once, from one of the machine after `sync`.

        How many bytes it takes.
        """
        summed = _summed(index, durable, count, self._opening) + payload
        record = _sealed(_MAGIC, len(payload), _digest(summed, self._salt)) + summed
        current = self._current
        size = self._files[current].write_one(record, self.bytes)
        self.bytes += size
        self._written[current] += 1
        return size

    def reserve(self, size: int) -> None:
        """Be sure that `size` bytes more can be written, or raise DiskFull with nothing changed."""
        wanted = self.bytes + size + _HEADER.size
        if wanted > self._capacity[self._current]:
            wanted = -(-wanted // TAIL_BYTES) * TAIL_BYTES
            self._files[self._current].allocate(wanted)
            self._capacity[self._current] = wanted

    @property
    def room(self) -> int:
        """How large a record can be that is written without reserving anything."""
        return self._capacity[self._current] - self.bytes - _HEADER.size

    def unsynced(self) -> list[tuple[int, int]]:
        """What `sync` has to make safe: the files with what was written to them and not synced yet."""
        return [(at, self._written[at]) for at in (0, 1) if self._written[at] > self._synced[at]]

    def sync(self, unsynced: list[tuple[int, int]]) -> None:
        """Make safe what was unsynced at some moment, and still is; others may write meanwhile."""
        for at, written in unsynced:
            if written > self._synced[at]:
                self._files[at].sync()
                self._synced[at] = written

    def turn(self) -> None:
        """Go on in the other file; what is in this one has to be poured before the next turn."""
        self._current = 1 - self._current
        self.bytes = 0
        if self._capacity[self._current] > TAIL_BYTES:
            self._files[self._current].truncate(TAIL_BYTES)
            self._capacity[self._current] = TAIL_BYTES

    def close(self) -> None:
        for file in self._files:
            file.close()


def read_tail(disk: Disk, directory: Path, salt: int, next_index: int) -> list[Record]:
    """The records that the log does not have yet, whose end is `next_index`; or Damaged."""
    found = _all(disk, directory, salt)
    last = max((each.record.opening for each in found), default=0)
    found = [each for each in found if each.record.opening == last]
    by_index: dict[int, list[_Found]] = {}
    for each in found:  # the log may have a part of the first one
        by_index.setdefault(max(each.record.index, min(next_index, each.record.next_index)), []).append(each)
    chain: list[Record] = []
    expected = next_index
    while (record := _following(by_index.get(expected, []), expected)) is not None:
        chain.append(record)
        expected = record.next_index
    known = max((each.record.durable for each in found), default=0)
    if known > expected:
        raise Damaged(f"{directory}: the events from {expected} to {known} cannot be read from its tail")
    return chain


@dataclass(frozen=True, slots=True)
class _Found:
    record: Record
    in_row: bool
    """Whether everything before it in the file is valid, too."""


def _all(disk: Disk, directory: Path, salt: int) -> list[_Found]:
    """Every valid record of both files, of whatever opening."""
    paths = [directory / name for name in TAIL_FILES]
    return [
        each for path in paths if disk.kind(path) == "file" for each in _find(disk.read_whole(path), salt)
    ]


def _following(candidates: list[_Found], expected: int) -> Record | None:
    """The record that goes on at `expected`.

    One behind a damaged place counts only if it says that everything before it was durable: then it cannot
    belong to events that were lost with the machine and have been replaced since.
    """
    for each in candidates:
        record = each.record
        sure = each.in_row or (record.index == expected and record.durable == expected)
        if sure and record.next_index > expected:
            return record
    return None


def _find(data: bytes, salt: int) -> list[_Found]:
    """Every valid record: those of the row that begins at offset 0, and any behind where it ends."""
    found: list[_Found] = []
    at = 0
    while (record := _record_at(data, at, salt)) is not None:
        if found:
            before = found[-1].record
            if (record.index, record.opening) != (before.next_index, before.opening):
                break
        found.append(_Found(record, in_row=True))
        at += _HEADER.size + len(record.payload)
    at, patience = data.find(_MAGIC, at), _PATIENCE * len(data)
    while at >= 0:
        claimed, following = _claimed(data, at), at + 1
        if claimed <= max(patience, _SMALL_BYTES):
            patience -= claimed
            record = _record_at(data, at, salt)
            if record is not None:
                found.append(_Found(record, in_row=False))
                following = at + claimed  # inside of it is no other
        at = data.find(_MAGIC, following)
    return found


def _claimed(data: bytes, at: int) -> int:
    """How large the record there says that it is; 0 if it would not end within the file."""
    size = 0 if at + _HEADER.size > len(data) else _HEADER.size + int(_HEADER.unpack_from(data, at)[1])
    return size if at + size <= len(data) else 0


def _record_at(data: bytes, at: int, salt: int) -> Record | None:
    if at + _HEADER.size > len(data):
        return None
    magic, length, seal, index, durable, count, opening = _HEADER.unpack_from(data, at)
    end = at + _HEADER.size + length
    if magic != _MAGIC or end > len(data):
        return None
    with memoryview(data) as view, view[at + _SUMMED_FROM : end] as summed:
        if _digest(summed, salt) != seal:
            return None
    return Record(index, durable, count, opening, data[at + _HEADER.size : end])
