"""Rolling: the active segment gets its ending and its final name, and the next one begins.

The next one is prepared first, so that a full disk is noticed while nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.kernel.errors import Broken, DiskFull, TooLarge
from headrace.log.active import ActiveSegment, prepare_active
from headrace.log.disk import Disk
from headrace.log.framing import Frames
from headrace.log.meta import Meta
from headrace.log.retention import free_or_remove
from headrace.log.segment_name import Listing
from headrace.log.settings import Settings
from headrace.log.state import LogState


def next_segment(
    disk: Disk, meta: Meta, state: LogState, old: ActiveSegment, now_us: int, check: Callable[[], None]
) -> ActiveSegment:
    """Finalize `old`, the active segment, and begin the next one.

    A DiskFull leaves everything as it was; after any other error the log is in doubt. `check` is called
    before names change: it raises if another writer has taken the log over.
    """
    # One full of markers only is replaced, under the same name, by one that carries the same state.
    has_indexes = state.next_index > old.name.first_index
    prepared = prepare_active(disk, old.file.path.parent, meta, state, now_us)
    try:
        if has_indexes:
            old.write_ending(meta, state, now_us)
    except DiskFull:
        free_or_remove(disk, prepared.temporary, meta.settings.containers)
        raise
    check()
    try:
        if has_indexes:
            old.take_final_name(disk, state)
        return prepared.put(disk)
    except DiskFull as error:  # names may have changed: this one cannot be tried again
        raise Broken(str(error)) from error


def must_roll(
    active: ActiveSegment, settings: Settings, frames: Frames, held: Sequence[Frames], now_us: int
) -> bool:
    """Whether a new segment must begin before `frames`: this one is full by its policy or its container.

    `held` are to be written before them.
    """
    if settings.containers:
        size, batches, taken = settings.containers.bytes, frames.batches, frames.size_bytes
        for before in held:
            batches += before.batches
            taken += before.size_bytes
        if taken <= active.room_in(size, batches, markers=frames.batches == 0):
            return False
        most = active.room_when_new(size, frames.batches)
        if frames.size_bytes > most:
            raise TooLarge(f"{frames.size_bytes} bytes in one append: a container of this log takes {most}")
        return True
    finalize = settings.finalize
    full = (
        active.offset >= finalize.bytes
        or active.entries >= finalize.entries
        or now_us - active.created_us >= finalize.age_s * 1_000_000
    )
    return full and active.entries > 0


def ring_is_full(disk: Disk, directory: Path, settings: Settings) -> bool:
    """Whether as many containers as there may be hold live entries, and none is free."""
    if settings.containers is None or settings.containers.limit is None:
        return False
    listing = Listing.of(disk.names(directory))
    return not listing.free and len(listing.segments) >= settings.containers.limit
