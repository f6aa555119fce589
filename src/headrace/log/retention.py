"""Retention: which whole segments may go.

A finalized segment may be removed when it is older than `age_s`, or when the segments after it alone reach
the kept `bytes` or `entries`, or when every named position of the log has passed it (`consumed`). Only a
prefix is ever removed: a segment stays as long as one before it stays.
"""

from __future__ import annotations

from pathlib import Path

from headrace.log.disk import Disk
from headrace.log.frame import HEADER_BYTES, decode_header
from headrace.log.meta import Meta
from headrace.log.positions import smallest_position
from headrace.log.segment_name import FreeName, Listing
from headrace.log.settings import Containers
from headrace.log.state import LogState


def removable(disk: Disk, directory: Path, meta: Meta, state: LogState, now_us: int) -> int:
    """The index below which retention lets everything go."""
    retention = meta.settings.retention
    if retention.keeps_all:
        return 0
    finals = Listing.of(disk.names(directory)).finals
    consumed = smallest_position(disk, directory) if retention.consumed else None
    sizes = [disk.size(directory / str(name)) for name in finals] if retention.bytes is not None else []
    bytes_after = sum(sizes)
    before = 0
    for row, name in enumerate(finals):
        bytes_after -= sizes[row] if sizes else 0
        gone = (
            (
                retention.age_s is not None
                and _age_s(disk, directory / str(name), meta, now_us) > retention.age_s
            )
            or (retention.bytes is not None and bytes_after >= retention.bytes)
            or (retention.entries is not None and state.next_index - name.next_index >= retention.entries)
            or (consumed is not None and name.next_index <= consumed)
        )
        if not gone:
            break
        before = name.next_index
    return before


def remove_trimmed(disk: Disk, directory: Path, containers: Containers | None, base_index: int) -> None:
    """Remove the files of segments that lie wholly below `base_index`."""
    gone = [name for name in Listing.of(disk.names(directory)).finals if name.next_index <= base_index]
    for name in gone:
        free_or_remove(disk, directory / str(name), containers)
    if gone:
        disk.sync_dir(directory)


def free_or_remove(disk: Disk, path: Path, containers: Containers | None) -> None:
    """Take a segment's file out of the log: containers are kept for use again, up to as many as there may be;
    other files are removed.
    """
    listing = Listing.of([name for name in disk.names(path.parent) if name != path.name])
    free, limit = listing.free, None if containers is None else containers.limit
    if containers is None or (limit is not None and len(free) + len(listing.segments) >= limit):
        disk.remove(path)
        return
    number = free[-1].number + 1 if free else 1
    disk.rename(path, path.parent / str(FreeName(number)))


def _age_s(disk: Disk, path: Path, meta: Meta, now_us: int) -> float:
    """Seconds since the segment was finalized, as its trailer says; 0 if that is damaged."""
    with disk.opened(path) as file:
        if file.size() < HEADER_BYTES:
            return 0.0
        trailer = decode_header(file.read(HEADER_BYTES, file.size() - HEADER_BYTES), meta.salt)
    return 0.0 if trailer is None else (now_us - trailer.time_us) / 1_000_000
