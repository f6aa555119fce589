"""Doubt: what a power cut left of a copy that had not been synced, with holes in it.

A disk may keep a later write and lose an earlier one. In a log of its own the hole is damage, and what
follows it stays (see `recover`). A copy can do better: all that it had not made durable comes from its source
again, the very same frames. So its active segment is cut at the first hole behind what was durable, without
a new epoch: readers who have been further on will find there what they found before.
"""

from __future__ import annotations

from pathlib import Path

from headrace.kernel.clock import Clock
from headrace.kernel.errors import Damaged
from headrace.log.body import BodyDecoder
from headrace.log.damage import Damage
from headrace.log.disk import Disk
from headrace.log.keep import keep_part
from headrace.log.mark import Extent, believable, read_extent
from headrace.log.meta import Meta
from headrace.log.replace_active import cut_log, plan_cut
from headrace.log.scan import Scanner
from headrace.log.segment_name import ActiveName, Listing
from headrace.log.start import read_start
from headrace.log.view import View


def cut_at_hole(disk: Disk, directory: Path, meta: Meta, clock: Clock) -> None:
    """Cut the copy at the first hole that was never durable. The writer lock must be held."""
    active = Listing.of(disk.names(directory)).active
    if active is None:
        return
    extent = believable(read_extent(disk, directory), active.epoch) or Extent()
    hole = _first_hole(disk, directory, active, meta)
    if hole is not None and hole.first_lost >= extent.durable_index:
        with disk.opened(directory / str(active)) as file:
            keep_part(disk, directory, f"{active}.{hole.offset}", file, hole.offset, file.size(), clock)
        cut_log(disk, directory, meta, plan_cut(disk, directory, meta, hole.first_lost, active.epoch))


def _first_hole(disk: Disk, directory: Path, active: ActiveName, meta: Meta) -> Damage | None:
    with disk.opened(directory / str(active)) as file:
        view = View(file, salt=meta.salt, finalized=False, copying=False)
        try:
            schema = read_start(view, str(active)).meta.schema
        except Damaged:
            return None
        scanner = Scanner(view, str(active), active.first_index, BodyDecoder(schema))
        return next((found for found in scanner if isinstance(found, Damage)), None)
