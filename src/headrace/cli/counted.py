"""Counted: a file that is read once from start to end, and says how far that is."""

from __future__ import annotations

import io
import os
import stat
from typing import BinaryIO


class Counted(io.RawIOBase):
    """Reads a file through; `done` bytes of `size`, which is 0 for pipes."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._first = b""
        self.done = 0
        self.size = _size(file)

    def readable(self) -> bool:
        return True

    def put_back(self, data: bytes) -> None:
        """Let `data` be what is read next."""
        self._first = data + self._first
        self.done -= len(data)

    def read(self, size: int = -1) -> bytes:
        data = self._first if size < 0 else self._first[:size]
        self._first = self._first[len(data) :]
        if size < 0 or len(data) < size:
            data += self._file.read(-1 if size < 0 else size - len(data))
        self.done += len(data)
        return data

    def read_some(self, size: int) -> bytes:
        """At most `size` bytes as soon as some are there; none at the end."""
        if self._first:
            return self.read(min(size, len(self._first)))
        read = getattr(self._file, "read1", self._file.read)
        data: bytes = read(size)
        self.done += len(data)
        return data

    def fileno(self) -> int:
        return self._file.fileno()


def _size(file: BinaryIO) -> int:
    try:
        about = os.fstat(file.fileno())
    except OSError:  # not a file at all: io.UnsupportedOperation is one
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else 0
