"""Verifying: reading every byte of a log and saying exactly what is wrong with it.

Checked are: every frame's checksums, indexes without holes, keys that never go back, batches that are of
their segment's schema, footers that match what they describe, names that match what is inside, and that what
the mark calls durable is there. Nothing is changed. The tail of an active segment may be in the middle of
being written, so an unfinished frame there is no damage unless it had been durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.kernel.errors import Damaged, NotFound
from headrace.log.body import BodyDecoder, schema_tag
from headrace.log.damage import Damage, Report
from headrace.log.disk import Disk
from headrace.log.frame import Kind
from headrace.log.mark import MARK_FILE, Extent, believable, read_extent
from headrace.log.meta import Meta
from headrace.log.moving import look_again
from headrace.log.recover import missing_at_start, missing_segments, newest_epoch
from headrace.log.scan import Frame, Scanner
from headrace.log.segment_name import FinalName, Listing, SegmentName
from headrace.log.start import read_start
from headrace.log.table import BatchTable, read_footer
from headrace.log.view import View

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@dataclass(slots=True)
class Sums:
    """What was found so far: in one segment, or in all of them."""

    batches: int = 0
    entries: int = 0
    bytes: int = 0
    next_index: int = 0
    base_index: int = 0
    trimmed: int = 0
    damages: list[Damage] = field(default_factory=list)

    def add(self, other: Sums) -> None:
        """Put what was found in the next segment behind this."""
        self.batches += other.batches
        self.entries += other.entries
        self.bytes += other.bytes
        self.next_index = other.next_index
        self.base_index = max(self.base_index, other.base_index)
        self.damages += other.damages


@dataclass(frozen=True, slots=True)
class Outset:
    """What a check sets out with: the files, and what the mark says of them before any is read."""

    listing: Listing
    sizes: dict[SegmentName, int]
    extent: Extent | None
    has_mark: bool
    epoch: int
    """Of the newest segment."""

    @property
    def trimmed(self) -> int:
        return self.extent.base_index if self.extent else 0


def verify(disk: Disk, directory: Path, meta: Meta, progress: Progress | None = None) -> Report:
    outset = set_out(disk, directory, meta)
    done, total, found = 0, sum(outset.sizes.values()), list[Sums]()
    for name in outset.listing.segments:
        sums = check_segment(disk, directory, name, meta, outset.trimmed)
        if sums is not None:
            found.append(sums)
            done += outset.sizes[name]
            if progress is not None:
                progress(done, total)
    return conclude(outset, found)


def set_out(disk: Disk, directory: Path, meta: Meta) -> Outset:
    return look_again(lambda: _set_out(disk, directory, meta))


def _set_out(disk: Disk, directory: Path, meta: Meta) -> Outset:
    # The mark before the directory: what it calls durable is in segments that are there by then.
    extent = read_extent(disk, directory)
    names = disk.names(directory)
    listing = Listing.of(names)
    sizes = {name: disk.size(directory / str(name)) for name in listing.segments}
    return Outset(listing, sizes, extent, MARK_FILE in names, newest_epoch(disk, directory, listing, meta))


def check_segment(disk: Disk, directory: Path, name: SegmentName, meta: Meta, trimmed: int) -> Sums | None:
    """What is found in one segment, whatever is in the others; None if it was trimmed meanwhile."""
    sums = Sums(trimmed=trimmed)
    try:
        verify_segment(disk, directory, name, meta, sums)
        # The name once more: a container may have gone on to another life while it was read.
        sums.bytes = disk.size(directory / str(name))
        return sums
    except NotFound:
        finalized = _finalized_since(disk, directory, name)
    return None if finalized is None else check_segment(disk, directory, finalized, meta, trimmed)


def _finalized_since(disk: Disk, directory: Path, name: SegmentName) -> FinalName | None:
    finals = Listing.of(disk.names(directory)).finals
    return next((final for final in finals if final.first_index == name.first_index and final != name), None)


def conclude(outset: Outset, found: Iterable[Sums]) -> Report:
    """The report on all segments, `found` being in their order. Nothing more is read for it."""
    names = outset.listing.segments
    sums = Sums(damages=missing_segments(outset.listing))
    for each in found:
        sums.add(each)
    _check_mark(outset, sums)
    sums.damages += missing_at_start(outset.listing, sums.base_index)
    first = max(names[0].first_index, sums.base_index) if names else 0
    damages = tuple(sorted(sums.damages, key=lambda damage: damage.first_lost))
    return Report(len(names), sums.batches, sums.entries, sums.bytes, first, sums.next_index, damages)


def verify_segment(disk: Disk, directory: Path, name: SegmentName, meta: Meta, sums: Sums) -> None:
    finalized = isinstance(name, FinalName)
    with disk.opened(directory / str(name)) as file:
        # Copying, not mapping, while it may be cut: a group that is never finished is whole frames.
        copying = meta.settings.containers is not None or not finalized
        view = View(file, salt=meta.salt, finalized=finalized, copying=copying)
        try:
            start = read_start(view, str(name))
            segment_meta, sums.base_index = start.meta, max(sums.base_index, start.state.base_index)
            if segment_meta.id != meta.id:
                what = f"it belongs to another log ({segment_meta.id})"
                sums.damages.append(Damage("start", str(name), 0, 0, *_span(name), what))
        except Damaged:
            segment_meta = meta
        scanner = Scanner(view, str(name), name.first_index, BodyDecoder(segment_meta.schema))
        seen, tag = BatchTable(), schema_tag(segment_meta.schema)
        key = 0
        end: int | None = None  # where what may never have counted begins, and so many damages before it
        open_group, proven = False, len(sums.damages)
        for found in scanner:
            if isinstance(found, Damage):
                sums.damages.append(found)
                end = found.first_lost if end is None else end
                continue
            open_group = found.header.grouped
            if not open_group:
                end, proven = None, len(sums.damages)
            elif end is None:
                end = found.header.base_index
            if found.header.kind == Kind.BASE:
                sums.base_index = max(sums.base_index, found.header.first_key)
            if found.header.kind != Kind.BATCH:
                continue
            if found.header.schema_tag != tag:
                sums.damages.append(_of_another_schema(name, found))
                continue
            seen.add(found.offset, found.header)
            sums.batches += 1
            sums.entries += max(found.header.next_index - max(found.header.base_index, sums.trimmed), 0)
            if found.header.first_key < key or found.header.last_key < found.header.first_key:
                what = "its order keys go back"
                place = (found.offset, found.header.frame_bytes, scanner.next_index, scanner.next_index)
                sums.damages.append(Damage("header", str(name), *place, what))
            key = found.header.last_key
        sums.next_index = scanner.next_index
        if open_group and end is not None and not finalized:  # its pieces prove nothing (see `recover`)
            sums.next_index = end
            del sums.damages[proven:]
        if isinstance(name, FinalName):
            _check_ending(view, name, scanner, seen, sums)


def _of_another_schema(name: SegmentName, frame: Frame) -> Damage:
    """A batch that is as it was written, and cannot be read: its segment says another schema."""
    header = frame.header
    place = frame.offset, header.frame_bytes, header.base_index, header.next_index
    return Damage("body", str(name), *place, "it was written with another schema than its segment's")


def _check_ending(view: View, name: FinalName, scanner: Scanner, seen: BatchTable, sums: Sums) -> None:
    if scanner.next_index != name.next_index:
        lost = (scanner.next_index, max(name.next_index, scanner.next_index))
        size = view.size - scanner.offset
        what = "no valid frame to the end of the segment"
        sums.damages.append(Damage("header", str(name), scanner.offset, size, *lost, what))
        sums.next_index = name.next_index
    footer = read_footer(view)
    intact = footer is not None and footer.same_as(seen)
    if not intact and not any(damage.file == str(name) for damage in sums.damages):
        lost = (name.next_index, name.next_index)
        what = "the footer does not match the segment" if footer else "the footer is damaged"
        sums.damages.append(Damage("footer", str(name), scanner.offset, 0, *lost, what))


def _check_mark(outset: Outset, sums: Sums) -> None:
    extent = outset.extent
    if extent is None:
        if outset.has_mark:
            lost = (sums.next_index, sums.next_index)
            sums.damages.append(Damage("mark", MARK_FILE, 0, 64, *lost, "it does not match its checksum"))
    elif believable(extent, outset.epoch) and extent.durable_index > sums.next_index:
        lost = (sums.next_index, extent.durable_index)
        what = "durable entries are not there"
        file = str(outset.listing.active or "the log")
        sums.damages.append(Damage("cut", file, 0, 0, *lost, what))


def _span(name: SegmentName) -> tuple[int, int | None]:
    return name.first_index, name.next_index if isinstance(name, FinalName) else None
