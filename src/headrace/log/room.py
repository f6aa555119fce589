"""Room: what the active segment has on the disk ahead of what is written. It is had in two ways.

Ahead of a small write that will be synced the file is made larger, by zeros: then the sync need not record a
new size. Readers know how much that can be (`view`).

Ahead of all others only blocks are taken, and the file stays as large as its frames. The kernel then need
not find and count a block for every page it is given, which is a quarter of what a large write costs. No
more is taken than is written already, so that small logs stay small.

Either is a favour. A disk that does not do it is not asked again; one that is full shows by itself.
"""

from __future__ import annotations

from headrace.kernel.errors import HeadraceError
from headrace.log.disk import File
from headrace.log.settings import Settings
from headrace.log.view import RESERVED_BYTES

SMALL_BYTES = 16 << 10
"""Up to so much is a small write."""
_BLOCKS_FROM = 1 << 20
_BLOCKS_BYTES = 8 << 20
_EVERYWHERE = 1 << 63


class Room:
    """Of one active segment, for the thread that writes it."""

    def __init__(self, file: File, settings: Settings) -> None:
        contained = settings.containers is not None  # then all of it is there
        self._file = file
        self._zeros_until = 0 if settings.durability == "fsync" and not contained else _EVERYWHERE
        self._blocks_until = _EVERYWHERE if contained else 0

    def make(self, offset: int, size: int) -> None:
        """`size` bytes are about to be written at `offset`, the end of the frames."""
        end = offset + size
        if size <= SMALL_BYTES and self._zeros_until < _EVERYWHERE:
            if end > self._zeros_until:
                self._make_zeros(offset)
        elif end > self._blocks_until and offset >= _BLOCKS_FROM:
            self._take_blocks(offset, end)

    def _make_zeros(self, offset: int) -> None:
        try:
            self._file.allocate(offset + RESERVED_BYTES, offset)
            self._zeros_until = offset + RESERVED_BYTES
        except HeadraceError:
            self._zeros_until = _EVERYWHERE

    def _take_blocks(self, offset: int, end: int) -> None:
        until = end + min(offset, _BLOCKS_BYTES)
        try:
            self._file.take_blocks(until, offset)
            self._blocks_until = until
        except HeadraceError:
            self._blocks_until = _EVERYWHERE

    def give_back(self, offset: int) -> None:
        """Cut off what is behind the frames, which end at `offset`. Nobody has that mapped: see `view`."""
        kept = [until for until in (self._zeros_until, self._blocks_until) if offset < until < _EVERYWHERE]
        if kept:
            self._file.truncate(offset)
            self.gone()

    def gone(self) -> None:
        """The file was cut where its frames end."""
        if self._zeros_until < _EVERYWHERE:
            self._zeros_until = 0
        if self._blocks_until < _EVERYWHERE:
            self._blocks_until = 0
