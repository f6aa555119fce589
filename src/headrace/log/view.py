"""Views: reading the bytes of one segment without copying them, safely.

Finalized segments never change, so they are memory-mapped, and the batches handed out point into the
map. The active segment only grows: headers are read with `pread`, and a body is taken from the map only
when its frame is complete, because a complete frame is never cut (a torn one may be, and touching a
mapped page behind the end of a file kills the process). Whether it is complete, the size of the file says, as
it is at that moment: it becomes smaller when a torn frame is cut. Its last 64 KiB are never taken from the
map: so much may be reserved there for frames to come, and a torn one ends in it. Containers are written over
and over, so their bytes are always copied before they are checked.

Pages that a scan has left behind are given back to the kernel as it goes, so that reading a large log
does not look like using a large memory. Batches still held by someone are simply paged in again.
"""

from __future__ import annotations

import mmap

import pyarrow as pa

from headrace.log.disk import File
from headrace.log.frame import HEADER_BYTES, Header, decode_header

_RELEASE_BYTES = 8 << 20
_REMAP_BYTES = 1 << 20
_PAGE = mmap.PAGESIZE
RESERVED_BYTES = 64 << 10
"""At most so much behind the last frame of an active segment is zeros, reserved for the next ones."""


class View:
    """The bytes of one segment file."""

    def __init__(self, file: File, *, salt: int, finalized: bool, copying: bool) -> None:
        self.file = file
        self.finalized = finalized
        self._salt = salt
        self._copying = copying
        self._map: mmap.mmap | None = None
        self._mapped: pa.Buffer | None = None
        self._mapped_bytes = 0
        self._released = 0
        self.size = file.size()
        if finalized and not copying:
            self._remap()

    def refresh(self) -> int:
        """Look again how large the file is."""
        self.size = self.file.size()
        return self.size

    def header(self, offset: int) -> Header | None:
        """The valid header at `offset`, or None."""
        return decode_header(self.raw(offset, HEADER_BYTES), self._salt)

    def raw(self, offset: int, size: int) -> bytes:
        if self.finalized and self._map is not None:
            return self._map[offset : offset + size]
        return self.file.read(size, offset)

    def body(self, offset: int, header: Header) -> pa.Buffer | None:
        """The body of the frame at `offset`, or None while it is not all there."""
        start, end = offset + HEADER_BYTES, offset + header.frame_bytes
        if (not self.finalized or end > self.size) and end > self.refresh():
            return None
        if end <= self._mappable() and not self._copying:
            if end > self._mapped_bytes and self._mappable() - self._mapped_bytes >= _REMAP_BYTES:
                self._remap()
            if end <= self._mapped_bytes and self._mapped is not None:
                self._release_before(offset)
                return self._mapped.slice(start, header.body_bytes)
        data = self.file.read(header.body_bytes, start)
        return pa.py_buffer(data) if len(data) == header.body_bytes else None

    def _mappable(self) -> int:
        return self.size if self.finalized else self.size - RESERVED_BYTES

    def _remap(self) -> None:
        size = self._mappable()
        if size:
            try:
                self._map = self.file.map(size)
            except ValueError:
                return  # the file has become smaller just now: then it is read
            self._mapped = pa.py_buffer(self._map)
        self._mapped_bytes = size
        self._released = 0

    def _release_before(self, offset: int) -> None:
        done = offset // _PAGE * _PAGE
        self._released = min(self._released, done)  # the footer is read first: then reading begins anew
        if self._map is not None and done >= self._released + _RELEASE_BYTES:
            self._map.madvise(mmap.MADV_DONTNEED, self._released, done - self._released)
            self._released = done

    def close(self) -> None:
        """Close the file. Batches that point into the map keep it alive until they are gone."""
        self._mapped = self._map = None
        self.file.close()
