"""Inventory: what is known of each segment file of a log: its state, indexes, keys, size and checksum.

Names and footers tell all of it but the checksum, for which every byte is read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from headrace.kernel.errors import NotFound
from headrace.log.disk import Disk, File
from headrace.log.frame import HEADER_BYTES, decode_header
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.log.segment_name import ActiveName, FinalName, parse_name
from headrace.log.table import read_footer
from headrace.log.view import View

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One file. An active one has no end yet, so all that an end tells is None."""

    file: str
    state: str
    """final or active."""
    first_index: int
    bytes: int
    last_index: int | None = None
    first_key: str | None = None
    last_key: str | None = None
    batches: int | None = None
    """None, too, if the footer is damaged."""
    finalized_us: int | None = None
    checksum: str | None = None
    """XXH3 of all bytes, as 16 hexadecimal digits, if it was asked for."""


def segment_facts(
    directory: Path, meta: Meta, files: Iterable[str], *, checksums: bool
) -> Iterator[SegmentFacts]:
    """The facts of those files that are there; some may have been finalized or trimmed meanwhile."""
    disk = Disk()
    for file in files:
        name = parse_name(file)
        if not isinstance(name, FinalName | ActiveName):
            continue
        try:
            with disk.opened(directory / file) as opened:
                yield _facts(opened, name, meta, checksums=checksums)
        except NotFound:
            continue


def _facts(file: File, name: FinalName | ActiveName, meta: Meta, *, checksums: bool) -> SegmentFacts:
    size = file.size()
    if isinstance(name, ActiveName):
        return SegmentFacts(str(name), "active", name.first_index, size)
    view = View(file, salt=meta.salt, finalized=True, copying=meta.settings.containers is not None)
    footer = read_footer(view)
    trailer = decode_header(file.read(HEADER_BYTES, max(0, size - HEADER_BYTES)), meta.salt)
    return SegmentFacts(
        str(name),
        "final",
        name.first_index,
        size,
        name.last_index,
        _key_text(meta, name.first_key),
        _key_text(meta, name.last_key),
        None if footer is None else len(footer),
        None if trailer is None else trailer.time_us,
        _checksum(file, size) if checksums else None,
    )


def _key_text(meta: Meta, key: int) -> str:
    if meta.order_by is None:
        return str(key)
    value = KeyColumn(meta.schema, meta.order_by).decode(key)
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def _checksum(file: File, size: int) -> str:
    digest = xxhash.xxh3_64()
    for at in range(0, size, _CHUNK_BYTES):
        digest.update(file.read(min(_CHUNK_BYTES, size - at), at))
    return digest.hexdigest()
