"""The active segment, as its writer sees it: where the next frame goes, and what is in it so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.kernel.errors import DiskFailed, DiskFull, HeadraceError
from headrace.log.disk import BytesLike, Disk, File
from headrace.log.frame import BATCH, HEADER_BYTES, Header, Kind, encode_frame
from headrace.log.meta import Meta
from headrace.log.room import SMALL_BYTES, Room
from headrace.log.segment_name import ActiveName, FinalName, Listing
from headrace.log.start import encode_start
from headrace.log.state import LogState
from headrace.log.table import BatchTable, encode_ending, ending_bytes

_MARKERS_BYTES = 8 * HEADER_BYTES
"""Room that batches leave free in a container, so that a full ring can still be told to trim."""


class ActiveSegment:
    def __init__(self, name: ActiveName, file: File, start_bytes: int, created_us: int, room: Room) -> None:
        self.name = name
        self.file = file
        self.start_bytes = start_bytes
        self.offset = start_bytes
        self.created_us = created_us
        self.table = BatchTable()
        self._room = room

    @property
    def entries(self) -> int:
        table = self.table
        return table.bases[-1] + table.counts[-1] - self.name.first_index if table.bases else 0

    def write(self, headers: Sequence[Header], parts: Sequence[BytesLike], size: int) -> None:
        """Write whole frames of `size` bytes, or nothing: what an error leaves behind is taken away again.

        A DiskFull leaves the segment as it was, so the caller may try again. After any other error the
        tail is in doubt.
        """
        self._write_or_undo(parts, size, headers)
        for header in headers:
            if header.kind == BATCH:
                self.table.add(self.offset, header)
            self.offset += HEADER_BYTES + header.body_bytes

    def take_back(self, offset: int, headers: Sequence[Header]) -> None:
        """Frames from `offset` on, which nobody has been shown, were never there.

        Their headers are wiped. Nothing is cut: readers may have mapped the file as far as it goes.
        """
        self.table.cut(offset)
        self.offset = offset
        for header in headers:
            self.file.write([bytes(HEADER_BYTES)], offset)
            offset += header.frame_bytes

    def _write_or_undo(self, parts: Sequence[BytesLike], size: int, headers: Sequence[Header] = ()) -> None:
        self._room.make(self.offset, size)
        try:
            if size <= SMALL_BYTES:  # a list of pieces costs more than copying them
                self.file.write_one(b"".join(parts), self.offset)
            else:
                self.file.write(parts, self.offset)
        except DiskFull as full:
            try:
                self._undo(headers)
                self._room.gone()
            except HeadraceError as error:
                raise DiskFailed(
                    f"{full}, and the half-written frame stays ({error}): reopen the log"
                ) from full
            raise

    def _undo(self, headers: Sequence[Header]) -> None:
        """Cut off what was written. Frames that are complete are wiped instead: readers may have them mapped.

        The last one first: if this is cut short as well, those before it are whole.
        """
        end, complete, there = self.offset, list[int](), self.file.size()
        for header in headers:
            if end + header.frame_bytes > there:
                break
            complete.append(end)
            end += header.frame_bytes
        try:
            for at in reversed(complete):
                self.file.write([bytes(HEADER_BYTES)], at)
        except DiskFull:  # where there is no room even for what is there already
            end = self.offset
        self.file.truncate(end)

    def give_back(self) -> None:
        """Take off the room behind the frames."""
        self._room.give_back(self.offset)

    def write_ending(self, meta: Meta, state: LogState, now_us: int) -> None:
        """Footer and trailer, synced with all that is before them; or a DiskFull and nothing."""
        at = Header(Kind.FOOTER, state.next_index, time_us=now_us, epoch=state.epoch)
        containers = meta.settings.containers
        size = containers.bytes if containers else None
        ending = encode_ending(self.table, at, self.offset, size, meta.salt)
        self._write_or_undo([ending], len(ending))
        if size is None:
            self.file.truncate(self.offset + len(ending))
        self.file.sync()

    def take_final_name(self, disk: Disk, state: LogState) -> FinalName:
        first_key = self.table.first_keys[0] if len(self.table) else state.head_key
        final = FinalName(self.name.first_index, state.next_index - 1, first_key, state.head_key)
        directory = self.file.path.parent
        disk.rename(directory / str(self.name), directory / str(final))
        disk.sync_dir(directory)
        return final

    def room_in(self, container_bytes: int, more_batches: int, *, markers: bool) -> int:
        """Bytes of further frames that fit before the ending, if so many of them are batches."""
        kept = 0 if markers else _MARKERS_BYTES
        return container_bytes - self.offset - ending_bytes(len(self.table) + more_batches) - kept

    def room_when_new(self, container_bytes: int, batches: int) -> int:
        """The same for a segment that has nothing but its start."""
        return container_bytes - self.start_bytes - ending_bytes(batches) - _MARKERS_BYTES


@dataclass(frozen=True, slots=True)
class Prepared:
    """An active segment that is complete but has a temporary name: `put` makes it count."""

    segment: ActiveSegment
    temporary: Path

    def put(self, disk: Disk) -> ActiveSegment:
        path = self.temporary.parent / str(self.segment.name)
        disk.rename(self.temporary, path)
        disk.sync_dir(path.parent)
        self.segment.file.path = path
        return self.segment


def prepare_active(disk: Disk, directory: Path, meta: Meta, state: LogState, now_us: int) -> Prepared:
    """A new active segment after everything in `state`, with its start frame on the disk."""
    name = ActiveName(state.epoch, state.next_index)
    start = encode_start(meta, state, now_us) + _standing_head(meta, state, now_us)
    temporary = directory / f"{name}.tmp"
    if meta.settings.containers:
        take_container(disk, temporary, meta.settings.containers.bytes)
    file = disk.open(temporary, write=True, create=True)
    if not meta.settings.containers:
        file.truncate(0)
    file.write([start], 0)
    file.sync()
    segment = ActiveSegment(name, file, len(start), now_us, Room(file, meta.settings))
    return Prepared(segment, temporary)


def _standing_head(meta: Meta, state: LogState, now_us: int) -> bytes:
    """HEAD once more if it is beyond the last entry: who begins to read here must learn of it."""
    if meta.order_by is None or state.head_key <= (state.last_key or 0):
        return b""
    keys = {"first_key": state.head_key, "last_key": state.head_key}
    head = Header(Kind.HEAD, state.next_index, **keys, time_us=now_us, epoch=state.epoch)
    return encode_frame(head, b"", meta.salt)


def take_container(disk: Disk, path: Path, size: int) -> None:
    """Put a container at `path`: one that is free, or a new one."""
    free = Listing.of(disk.names(path.parent)).free
    if free:
        disk.rename(path.parent / str(free[0]), path)
        return
    with disk.opened(path, write=True, create=True) as file:
        file.allocate(size)
