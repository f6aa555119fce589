"""Seeking by order key: names first, then one footer, then one batch."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import pyarrow as pa

from headrace.log.cursor import Cursor, OnDamage
from headrace.log.disk import Disk
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.log.segment_name import Listing
from headrace.log.segment_reader import Batch, SegmentReader


def index_of_key(
    disk: Disk, directory: Path, meta: Meta, key: int, first_index: int, on_damage: OnDamage | None = None
) -> int | None:
    """The index of the first entry whose order key is at least `key` (sortable); None if none is."""
    assert meta.order_by is not None
    listing = Listing.of(disk.names(directory))
    finals = listing.finals
    row = bisect_left([name.last_key for name in finals], key)
    start = listing.active.first_index if listing.active else 0
    if row < len(finals):
        start = finals[row].first_index
        segment = SegmentReader.open(disk, directory, finals[row], meta)
        try:
            start = segment.index_of_key(key) or start
        finally:
            segment.close()
    start = max(start, first_index)
    cursor = Cursor(disk, directory, meta, start, columns=[meta.order_by], on_damage=on_damage)
    column = KeyColumn(pa.schema([meta.schema.field(meta.order_by)]), meta.order_by)
    try:
        while (found := cursor.next()) is not None:
            if isinstance(found, Batch) and found.last_key >= key:
                return found.base_index + column.find(found.records, key)
    finally:
        cursor.close()
    return None
