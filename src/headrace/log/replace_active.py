"""Replacing the active segment: how entries are cut off, and how a writer takes over.

Bytes that readers may have mapped are never cut in place. A new active segment is made beside the old one,
with a higher epoch in its name, from the frames that stay; renaming it into place is the moment it counts,
because the newest epoch wins (see `Listing`). What it replaces is removed afterwards, by us or, if we crash,
by the next recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.kernel.errors import Damaged, Refused
from headrace.log.active import take_container
from headrace.log.body import BodyDecoder, BodyEncoder
from headrace.log.damage import Damage
from headrace.log.disk import Disk, File
from headrace.log.frame import Header, Kind, encode_frame, encode_header
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.log.retention import free_or_remove
from headrace.log.scan import Frame, Scanner
from headrace.log.segment_name import ActiveName, FinalName, Listing, SegmentName
from headrace.log.settings import Containers
from headrace.log.start import read_start
from headrace.log.view import View

FENCE = 2
"""Who takes over raises the epoch by this much, so that a truncation which the old writer has under way,
and which raises it by one, can never have the newest epoch."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How the log will be cut: `source` stays up to byte `end`, followed by the frames in `rest`."""

    source: SegmentName
    end: int
    rest: bytes
    epoch: int


def plan_cut(
    disk: Disk, directory: Path, meta: Meta, index: int | None, epoch: int, base_index: int = 0
) -> Cut:
    """What has to be done to make the log end before `index` (None: where it ends), under a new epoch.

    Nothing is changed yet. Refused if the index lies inside an atomic group.
    """
    segments = Listing.of(disk.names(directory)).segments
    name = next(
        name
        for name in reversed(segments)
        if index is None or name.first_index <= index or name is segments[0]
    )
    with disk.opened(directory / str(name)) as file:
        end, rest, next_index = _kept_below(_view(file, name, meta), name, meta, index)
    if base_index:  # what was trimmed stays trimmed, though the frame that said so may be cut off
        at = Header(Kind.BASE, next_index, first_key=base_index, last_key=base_index, epoch=epoch)
        rest += encode_frame(at, b"", meta.salt)
    return Cut(name, end, rest, epoch)


def cut_log(
    disk: Disk,
    directory: Path,
    meta: Meta,
    cut: Cut,
    still_ours: Callable[[], None] = lambda: None,
    *,
    fencing: bool = False,
) -> None:
    """Do it. The caller recovers afterwards. `still_ours` raises if another writer has taken over.

    `fencing` if an earlier writer may still write to what is replaced: then no container of it is used again.
    """
    name = ActiveName(cut.epoch, cut.source.first_index)
    temporary = directory / f"{name}.tmp"
    containers = meta.settings.containers
    if containers:
        take_container(disk, temporary, containers.bytes)
    with (
        disk.opened(directory / str(cut.source)) as source,
        disk.opened(temporary, write=True, create=True) as file,
    ):
        view = _view(source, cut.source, meta)
        if not containers:
            file.truncate(0)
        offset = 0
        while offset < cut.end:
            chunk = view.raw(offset, min(1 << 20, cut.end - offset))
            file.write([chunk], offset)
            offset += len(chunk)
        file.write([cut.rest], offset)
        if containers:  # nothing of an earlier life may follow frames that keep their old epochs
            end = offset + len(cut.rest)
            file.write([bytes(containers.bytes - end)], end)
        file.sync()
    still_ours()
    disk.rename(temporary, directory / str(name))
    disk.sync_dir(directory)
    still_ours()
    _remove_obsolete(disk, directory, None if fencing else containers)


def _remove_obsolete(disk: Disk, directory: Path, containers: Containers | None) -> None:
    for name in Listing.of(disk.names(directory)).obsolete:
        free_or_remove(disk, directory / str(name), containers)
    disk.sync_dir(directory)


def _view(file: File, name: SegmentName, meta: Meta) -> View:
    copying = meta.settings.containers is not None
    return View(file, salt=meta.salt, finalized=isinstance(name, FinalName), copying=copying)


def _kept_below(view: View, name: SegmentName, meta: Meta, index: int | None) -> tuple[int, bytes, int]:
    """Where the bytes that stay end, the part of a batch that stays as well, and the index after both."""
    try:
        schema = read_start(view, str(name)).meta.schema
    except Damaged:
        schema = meta.schema
    scanner = Scanner(view, str(name), name.first_index, BodyDecoder(schema))
    group_base: int | None = None
    end, next_index = 0, name.first_index
    for found in scanner:
        if isinstance(found, Damage):
            if index is not None and (found.stop_lost or 0) >= index:
                break
            continue
        header = found.header
        if header.kind == Kind.FOOTER:
            break
        if not header.grouped:
            group_base = None
        elif group_base is None:
            group_base = header.base_index
        if index is not None and header.next_index > index:
            if group_base is not None and index > group_base:
                raise Refused(f"index {index} lies inside the atomic group that begins at {group_base}")
            if header.kind != Kind.BATCH or header.base_index >= index:
                break
            return found.offset, _rest(found, schema, meta, index), index
        end, next_index = scanner.offset, header.next_index
    return end, b"", next_index


def _rest(frame: Frame, schema: pa.Schema, meta: Meta, index: int) -> bytes:
    """The first rows of a batch as a frame of their own, of the same epoch: they are the same entries."""
    header = frame.header
    records = BodyDecoder(schema).decode(header, frame.body).slice(0, index - header.base_index)
    body = BodyEncoder(schema, meta.settings.compression).encode(records)
    last_key = header.first_key + len(records) - 1
    if meta.order_by is not None:
        last_key = KeyColumn(schema, meta.order_by).span(records)[1]
    shorter = header._replace(
        entries=len(records),
        last_key=last_key,
        body_bytes=body.body_bytes,
        body_sum=body.body_sum,
        marks=body.marks,
    )
    return encode_header(shorter, meta.salt) + b"".join(body.pieces)
