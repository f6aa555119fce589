"""What a log says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.log.cursor import Cursor
from headrace.log.damage import Damage
from headrace.log.disk import Disk
from headrace.log.keep import KEPT_DIRECTORY
from headrace.log.lock import LOCK_FILE
from headrace.log.mark import MARK_FILE, Extent, read_extent
from headrace.log.meta import META_FILE, Meta
from headrace.log.positions import POSITIONS_DIRECTORY, read_positions
from headrace.log.segment_name import Listing, parse_name
from headrace.log.segment_reader import Batch
from headrace.log.settings import Settings

_OURS = {META_FILE, MARK_FILE, LOCK_FILE, KEPT_DIRECTORY, POSITIONS_DIRECTORY}


@dataclass(frozen=True, slots=True)
class LogInfo:
    path: str
    id: str
    schema: pa.Schema
    order_by: str | None
    settings: Settings
    first_index: int
    next_index: int
    durable_index: int
    epoch: int
    segments: int
    bytes: int
    free_containers: int
    positions: dict[str, int]
    kept: list[str]
    foreign: list[str]

    @property
    def entries(self) -> int:
        return self.next_index - self.first_index


def gather_info(disk: Disk, directory: Path, meta: Meta, extent: Extent | None) -> LogInfo:
    names = disk.names(directory)
    listing = Listing.of(names)
    extent = extent or current_extent(disk, directory, meta)
    segments = listing.segments
    kept = directory / KEPT_DIRECTORY
    return LogInfo(
        path=str(directory),
        id=meta.id,
        schema=meta.schema,
        order_by=meta.order_by,
        settings=meta.settings,
        first_index=max(extent.base_index, segments[0].first_index if segments else 0),
        next_index=extent.next_index,
        durable_index=extent.durable_index,
        epoch=extent.epoch,
        segments=len(segments),
        bytes=sum(disk.size(directory / str(name)) for name in (*segments, *listing.free)),
        free_containers=len(listing.free),
        positions=read_positions(disk, directory),
        kept=disk.names(kept) if kept.is_dir() else [],
        foreign=[n for n in names if n not in _OURS and parse_name(n) is None and not n.endswith(".tmp")],
    )


def current_extent(disk: Disk, directory: Path, meta: Meta) -> Extent:
    """How far a log reaches that this process does not write: the mark's word, or a scan without it."""
    extent = read_extent(disk, directory)
    if extent is not None:
        return extent
    listing = Listing.of(disk.names(directory))
    start = listing.active.first_index if listing.active else 0
    damages: list[Damage] = []
    cursor = Cursor(disk, directory, meta, start, on_damage=damages.append)
    finals = listing.finals
    durable = (finals[-1].next_index, finals[-1].last_key) if finals else (0, 0)
    head = durable[1]
    try:
        while (item := cursor.next()) is not None:
            head = max(head, item.last_key if isinstance(item, Batch) else item.key)
        epoch = listing.active.epoch if listing.active else 0
        return Extent(0, cursor.index, durable[0], epoch, head, durable[1])
    finally:
        cursor.close()
