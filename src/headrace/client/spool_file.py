"""One file of a spool as the forwarder sees it: read, erased record by record, and deleted in the end.

Beside the file lies its watermark: 8 bytes how far everything is done, 8 bytes checksum. It only saves
reading again what is erased; without it nothing is lost. It is written after the file itself was synced:
a power cut must not leave a mark beyond the end of its file, where other records may be written then.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import xxhash

from headrace.client.spool import SUFFIX
from headrace.client.spool_record import (
    ERASED,
    RECORD_BYTES_MAX,
    STATE_OFFSET,
    Gap,
    Record,
    Scan,
    claimed,
    scan,
)

READ_BYTES = 1 << 20
_MARK = struct.Struct("<QQ")
_NAME = re.compile(rf"[0-9]{{1,10}}{re.escape(SUFFIX)}")


class SpoolFile:
    """Use it in a `with`: the file is open inside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hour = int(path.name.removesuffix(SUFFIX))
        self._mark = path.with_suffix(".mark")
        self._fd = -1
        self.at = 0
        """Before this everything is erased, or no record."""

    @staticmethod
    def all_in(directory: Path) -> list[Path]:
        """The files of a spool, the oldest hour first."""
        found = [
            path
            for path in directory.iterdir()
            if _NAME.fullmatch(path.name) and path.is_file()  # to open a pipe would wait for who writes to it
        ]
        return sorted(found, key=lambda path: int(path.name.removesuffix(SUFFIX)))

    def __enter__(self) -> SpoolFile:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self.at = self._read_mark()
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._fd)
        self._fd = -1

    def next(self, most: int) -> Scan:
        """Up to `most` records from `at` on, erased ones included. It does not move `at`."""
        wanted = READ_BYTES
        while True:
            data = os.pread(self._fd, wanted, self.at)
            at_end = len(data) < wanted
            found = scan(data, self.hour, self.at, most=most, at_end=at_end)
            if found.end > self.at or at_end:
                return found
            if wanted > RECORD_BYTES_MAX:  # so much without any record: pass over it
                return Scan([], Gap(self.at, len(data)), self.at + len(data))
            wanted = max(2 * wanted, claimed(data))

    def erase(self, records: Iterable[Record]) -> None:
        for record in records:
            os.pwrite(self._fd, ERASED, record.offset + STATE_OFFSET)

    def advance(self, end: int) -> None:
        """Everything before `end` is done."""
        os.fdatasync(self._fd)
        self.at = end
        where = end.to_bytes(8, "little")
        mark = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(mark, where + xxhash.xxh3_64_intdigest(where, seed=self.hour).to_bytes(8, "little"), 0)
        finally:
            os.close(mark)

    def retire(self) -> Gap | Literal["deleted", "busy", "more"]:
        """Delete the file, if all of it is done and nobody is writing to it.

        While the lock is held, no appender is inside its write: bytes at the end that are no record are torn
        for good. They are answered instead, and the file goes when `advance` has passed them. An appender
        that comes later finds a file without a name, and opens another.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "busy"
        try:
            if self.next(1).end > self.at:
                return "more"
            rest = os.fstat(self._fd).st_size - self.at
            if rest:
                return Gap(self.at, rest)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._mark)  # first: a mark without its file would be wrong for the next one
            os.unlink(self.path)
            return "deleted"
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def bytes_of(self, gap: Gap) -> bytes:
        return os.pread(self._fd, min(gap.size, READ_BYTES), gap.offset)

    def _read_mark(self) -> int:
        try:
            raw = self._mark.read_bytes()
        except FileNotFoundError:
            return 0
        if len(raw) != _MARK.size:
            return 0
        at, checksum = _MARK.unpack(raw)
        whole = checksum == xxhash.xxh3_64_intdigest(raw[:8], seed=self.hour)
        return at if whole and at <= os.fstat(self._fd).st_size else 0
