"""Replacing the active segment: how entries are cut off, and how a writer takes over.

Bytes that readers may have mapped are never cut in place. A new active segment is made beside the old one,
with a higher epoch in its name, from the frames that stay; renaming it into place is the moment it counts,
because the newest epoch wins (see `Listing`). What it replaces is removed afterwards, by us or, if we crash,
by the next recovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.kernel.errors import Damaged, Refused
from headrace.log.body import BodyDecoder, BodyEncoder
from headrace.log.damage import Damage
from headrace.log.disk import Disk
from headrace.log.frame import Header, Kind, encode_header
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.log.retention import free_or_remove
from headrace.log.scan import Frame, Scanner
from headrace.log.segment_name import ActiveName, FinalName, Listing, SegmentName
from headrace.log.start import read_start
from headrace.log.view import View


@dataclass(slots=True)
class _Kept:
    """The part of a segment that stays: its bytes up to `end`, then the `rest` of a cut batch."""

    end: int
    rest: bytes


def cut_log(disk: Disk, directory: Path, meta: Meta, index: int, epoch: int) -> None:
    """Make the log end before `index`, under a new epoch. The caller recovers afterwards."""
    segments = Listing.of(disk.names(directory)).segments
    name = next(name for name in reversed(segments) if name.first_index <= index or name is segments[0])
    with disk.opened(directory / str(name)) as source:
        finalized = isinstance(name, FinalName)
        view = View(source, salt=meta.salt, finalized=finalized, copying=meta.settings.containers is not None)
        kept = _kept_below(view, name, meta, index, epoch)
        _put(disk, directory, view, kept, ActiveName(epoch, name.first_index), meta)
    remove_obsolete(disk, directory, meta)


def remove_obsolete(disk: Disk, directory: Path, meta: Meta) -> None:
    for name in Listing.of(disk.names(directory)).obsolete:
        free_or_remove(disk, directory / str(name), meta.settings.containers)
    disk.sync_dir(directory)


def _kept_below(view: View, name: SegmentName, meta: Meta, index: int, epoch: int) -> _Kept:
    try:
        schema = read_start(view, str(name)).meta.schema
    except Damaged:
        schema = meta.schema
    scanner = Scanner(view, str(name), name.first_index, BodyDecoder(schema))
    group_base: int | None = None
    end = 0
    for found in scanner:
        if isinstance(found, Damage):
            continue
        header = found.header
        if header.kind == Kind.FOOTER:
            break
        if not header.grouped:
            group_base = None
        elif group_base is None:
            group_base = header.base_index
        if header.kind == Kind.BATCH and header.next_index > index:
            if group_base is not None and index > group_base:
                raise Refused(f"index {index} lies inside the atomic group that begins at {group_base}")
            rest = _rest(found, schema, meta, index, epoch) if header.base_index < index else b""
            return _Kept(found.offset, rest)
        end = scanner.offset
    return _Kept(end, b"")


def _rest(frame: Frame, schema: pa.Schema, meta: Meta, index: int, epoch: int) -> bytes:
    """The first rows of a batch as a frame of their own."""
    header = frame.header
    records = BodyDecoder(schema).decode(header, frame.body).slice(0, index - header.base_index)
    body = BodyEncoder(schema, meta.settings.compression).encode(records)
    last_key = header.first_key + len(records) - 1
    if meta.order_by is not None:
        last_key = KeyColumn(schema, meta.order_by).span(records)[1]
    shorter = Header(
        Kind.BATCH,
        header.base_index,
        len(records),
        header.first_key,
        last_key,
        header.time_us,
        epoch,
        body.body_bytes,
        body.body_sum,
        body.marks,
    )
    return encode_header(shorter, meta.salt) + b"".join(body.pieces)


def _put(disk: Disk, directory: Path, view: View, kept: _Kept, name: ActiveName, meta: Meta) -> None:
    temporary = directory / f"{name}.tmp"
    with disk.opened(temporary, write=True, create=True) as file:
        file.truncate(0)
        if meta.settings.containers:
            file.allocate(meta.settings.containers.bytes)
        offset = 0
        while offset < kept.end:
            chunk = view.raw(offset, min(1 << 20, kept.end - offset))
            file.write([chunk], offset)
            offset += len(chunk)
        file.write([kept.rest], offset)
        file.sync()
    disk.rename(temporary, directory / str(name))
    disk.sync_dir(directory)
