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
    36   4  a number that whoever opened the tail drew by lot
    40  ..  payload

A record is valid if and only if its checksum matches. Records follow one another from offset 0, each with
the index at which the one before ended and with the same number; what an earlier use of the file left behind
has smaller indexes, or another number, and ends the row. A crash may leave the last records in pieces, in any
order if they were not synced: they are cut. But if a valid record further on says that something missing was
durable, it is damage, and is told.
"""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass
from pathlib import Path

import xxhash

from headrace.kernel.errors import Damaged
from headrace.log.disk import Disk, File

TAIL_FILES = ("tail-0", "tail-1")
TAIL_BYTES = 4 << 20
_MAGIC = b"hrt1"
_HEADER = struct.Struct("<4sIQQQII")
_SEALED = struct.Struct("<4sIQ")
_SUMMED = struct.Struct("<QQII")
_SUMMED_FROM = 16


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
    """Both files, as their one writer sees them. Used by one thread at a time; `sync` may run beside."""

    def __init__(self, files: list[File], salt: int) -> None:
        self._files = files
        self._salt = salt
        self._opening = secrets.randbits(32)
        self._current = 0
        self.bytes = 0
        """What the current file holds."""
        self._capacity = [TAIL_BYTES, TAIL_BYTES]

    @classmethod
    def open(cls, disk: Disk, directory: Path, salt: int) -> Tail:
        """Both files, made if need be, ready to be written from their start: see `read_tail` first."""
        fresh = any(disk.kind(directory / name) == "nothing" for name in TAIL_FILES)
        files = [disk.open(directory / name, write=True, create=True) for name in TAIL_FILES]
        for file in files:
            if file.size() < TAIL_BYTES:
                # Written once, not only reserved: a sync then has no new blocks to record, a third quicker.
                file.write([bytes(TAIL_BYTES - file.size())], file.size())
                file.sync()
        if fresh:
            disk.sync_dir(directory)
        return cls(files, salt)

    def write(self, payload: bytes, index: int, count: int, durable: int) -> None:
        """Add a record: safe from a crash of the process at once, from one of the machine after `sync`."""
        summed = _SUMMED.pack(index, durable, count, self._opening) + payload
        seal = xxhash.xxh3_64_intdigest(summed, self._salt)
        record = _SEALED.pack(_MAGIC, len(payload), seal) + summed
        self.bytes += self._files[self._current].write_one(record, self.bytes)

    def reserve(self, size: int) -> None:
        """Be sure that `size` bytes more can be written, or raise DiskFull with nothing changed."""
        wanted = self.bytes + size + _HEADER.size
        if wanted > self._capacity[self._current]:
            wanted = -(-wanted // TAIL_BYTES) * TAIL_BYTES
            self._files[self._current].allocate(wanted)
            self._capacity[self._current] = wanted

    def sync(self) -> None:
        self._files[self._current].sync()

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
    rows = [
        _read_row(disk.read_whole(directory / name), salt)
        for name in TAIL_FILES
        if _is_there(disk, directory / name)
    ]
    rows.sort(key=lambda row: row.records[0].index if row.records else -1)
    found: list[Record] = []
    expected = next_index
    for record in (record for row in rows for record in row.records if record.next_index > next_index):
        if record.index > expected:
            if record.durable > expected:
                raise Damaged(
                    f"{directory}: the events from {expected} to {record.index} are gone from its tail"
                )
            break  # never acknowledged: the machine went down before they were synced
        found.append(record)
        expected = record.next_index
    known = max((row.durable for row in rows), default=0)
    if known > expected:
        raise Damaged(f"{directory}: the events from {expected} to {known} cannot be read from its tail")
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    records: list[Record]
    durable: int
    """What the valid records of the file say, those behind a damaged place too."""


def _read_row(data: bytes, salt: int) -> _Row:
    records: list[Record] = []
    at = 0
    while (record := _record_at(data, at, salt)) is not None:
        if records and (record.index, record.opening) != (records[-1].next_index, records[0].opening):
            break
        records.append(record)
        at += _HEADER.size + len(record.payload)
    durable = records[-1].durable if records else 0
    at = data.find(_MAGIC, at)
    while at >= 0:  # is there anything valid and newer behind a record that is not?
        record = _record_at(data, at, salt)
        if record is not None and (not records or record.index > records[-1].index):
            durable = max(durable, record.durable)
        at = data.find(_MAGIC, at + 1)
    return _Row(records, durable)


def _record_at(data: bytes, at: int, salt: int) -> Record | None:
    if at + _HEADER.size > len(data):
        return None
    magic, length, seal, index, durable, count, opening = _HEADER.unpack_from(data, at)
    end = at + _HEADER.size + length
    if magic != _MAGIC or end > len(data):
        return None
    if xxhash.xxh3_64_intdigest(data[at + _SUMMED_FROM : end], salt) != seal:
        return None
    return Record(index, durable, count, opening, data[at + _HEADER.size : end])


def _is_there(disk: Disk, path: Path) -> bool:
    return disk.kind(path) == "file"
