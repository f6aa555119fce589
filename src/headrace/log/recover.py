"""Recovery: what opening a log for writing puts right.

A crash can leave: a torn tail of the active segment, a group without its commit, an ending without its
rename, files of a truncation or take-over that was under way. Recovery removes exactly these, keeping in
`kept/` a copy of all bytes that might be somebody's. Everything else that is wrong is damage, which is
reported and left where it is (`verify` lists it, `repair` deals with it).

How a tail is told from damage: behind a torn tail nothing valid follows. Whatever valid frame is found
after a bad place was written by us, so the place is damage and the frame stays.

What was once durable is not forgotten either: if the mark says that indexes were safe which are not there,
they are reported as lost and left out (a gap), never given to other entries.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.kernel.clock import Clock
from headrace.kernel.errors import Damaged
from headrace.log.active import ActiveSegment, prepare_active
from headrace.log.body import BodyDecoder
from headrace.log.damage import Damage, Recovery
from headrace.log.disk import Disk, File
from headrace.log.frame import HEADER_BYTES, Kind, decode_header
from headrace.log.keep import keep_file, keep_part
from headrace.log.mark import Extent, believable, carry_mark, read_extent
from headrace.log.meta import Meta
from headrace.log.replace_active import FENCE
from headrace.log.room import Room
from headrace.log.scan import Scanner, find_frame
from headrace.log.segment_name import FinalName, Listing
from headrace.log.start import read_start
from headrace.log.state import LogState
from headrace.log.table import final_epoch
from headrace.log.view import View

_logger = logging.getLogger("headrace.log")
_PIECE_BYTES = 1 << 20


@dataclass(slots=True)
class Recovered:
    meta: Meta
    state: LogState
    active: ActiveSegment
    base_index: int
    """The first index that is kept; only the mark may know of it."""
    lost_until: int
    """Indexes from `state.next_index` up to here were durable and are gone."""
    report: Recovery


@dataclass(slots=True)
class _Findings:
    damages: list[Damage] = field(default_factory=list)
    cut_bytes: int = 0
    cut_from_index: int | None = None
    kept_copy: str | None = None

    def report(self) -> Recovery:
        return Recovery(self.cut_bytes, self.cut_from_index, self.kept_copy, tuple(self.damages))


def recover(
    disk: Disk,
    directory: Path,
    meta: Meta,
    clock: Clock,
    *,
    new_epoch: bool = False,
    copying: bool = False,
) -> Recovered:
    """Bring the log into a state that can be appended to. The writer lock must be held.

    `new_epoch` when the log was taken from a writer that may still be about to begin a segment. `copying`
    for a copy of another log, the epoch of which only its source can raise.
    """
    findings = _Findings()
    for name in disk.names(directory):
        if name.endswith(".tmp"):
            disk.remove(directory / name)
    listing = Listing.of(disk.names(directory))
    for obsolete in listing.obsolete:
        keep_file(disk, directory, str(obsolete), clock)
    findings.damages += missing_segments(listing)
    epoch = newest_epoch(disk, directory, listing, meta)
    extent = believable(read_extent(disk, directory), epoch) or Extent()
    if listing.active is not None:
        active, meta, state = _recover_active(disk, directory, listing, meta, clock, findings)
    else:
        state = state_after(disk, directory, listing.finals, meta)
        known = _any_epoch(disk, directory, listing)
        if new_epoch or (known and not copying):
            state.epoch = max(state.epoch, known) + (FENCE if new_epoch else 1)
            carry_mark(disk, directory, epoch, state.epoch)
        active = prepare_active(disk, directory, meta, state, clock.now_us()).put(disk)
    base_index = max(state.base_index, extent.base_index)
    findings.damages += missing_at_start(listing, base_index)
    if extent.suspect:
        _write_again(active, extent.durable_index)
    active.file.sync()
    if extent.durable_index > state.next_index:
        lost = (state.next_index, extent.durable_index)
        what = "entries that had been made durable are not there"
        findings.damages.append(Damage("cut", str(active.name), active.offset, 0, *lost, what))
    report = findings.report()
    for damage in report.damages:
        _logger.warning("%s: %s", directory, damage)
    return Recovered(meta, state, active, base_index, max(extent.durable_index, state.next_index), report)


def newest_epoch(disk: Disk, directory: Path, listing: Listing, meta: Meta) -> int:
    """The epoch of the newest segment: an older mark is from before a truncation."""
    if listing.active is not None:
        return listing.active.epoch
    return final_epoch(disk, directory / str(listing.finals[-1]), meta.salt) if listing.finals else 0


def _any_epoch(disk: Disk, directory: Path, listing: Listing) -> int:
    """The largest epoch that anything here speaks of: a new segment must be newer than all that was cut.

    0 for a log that has just been made.
    """
    extent = read_extent(disk, directory)
    epochs = [extent.epoch if extent else 0]
    for name in listing.free:
        with disk.opened(directory / str(name)) as file:
            start = decode_header(file.read(HEADER_BYTES, 0), salt=0)
            epochs.append(start.epoch if start else 0)
    return max(epochs)


def trimmed_before(disk: Disk, directory: Path, listing: Listing, meta: Meta) -> int:
    """The first index that is kept, as the newest segment says: the mark may be older."""
    name = listing.segments[-1]
    state = LogState()
    with disk.opened(directory / str(name)) as file, contextlib.suppress(Damaged):
        finalized = isinstance(name, FinalName)
        copying = meta.settings.containers is not None or not finalized  # its writer may cut it meanwhile
        view = View(file, salt=meta.salt, finalized=finalized, copying=copying)
        start = read_start(view, str(name))
        state = start.state
        scanner = Scanner(view, str(name), name.first_index, BodyDecoder(start.meta.schema))
        fold_segment(scanner, state, None, [])
    return state.base_index


def missing_at_start(listing: Listing, base_index: int) -> list[Damage]:
    """The oldest entries, if their segment is gone although they were never trimmed."""
    if not listing.segments or listing.segments[0].first_index <= base_index:
        return []
    first = listing.segments[0]
    what = "the segment before this one is missing"
    return [Damage("missing", str(first), 0, 0, base_index, first.first_index, what)]


def missing_segments(listing: Listing) -> list[Damage]:
    """Segments whose neighbours are there but which are not."""
    damages = []
    expected: int | None = None
    for name in listing.segments:
        if expected is not None and name.first_index != expected:
            lost = (min(expected, name.first_index), name.first_index)
            what = (
                "the segment before this one is missing"
                if lost[0] < lost[1]
                else "it overlaps the one before"
            )
            damages.append(Damage("missing", str(name), 0, 0, *lost, what))
        expected = name.next_index if isinstance(name, FinalName) else None
    return damages


def _recover_active(
    disk: Disk, directory: Path, listing: Listing, meta: Meta, clock: Clock, findings: _Findings
) -> tuple[ActiveSegment, Meta, LogState]:
    name = listing.active
    assert name is not None
    file = disk.open(directory / str(name), write=True)
    view = View(file, salt=meta.salt, finalized=False, copying=meta.settings.containers is not None)
    created_us, room = clock.now_us(), Room(file, meta.settings)
    try:
        start = read_start(view, str(name))
        meta, state, created_us = start.meta, start.state, start.header.time_us
    except Damaged:
        # The scan below reports it. What it carried over is found by folding the segment before.
        state = state_after(disk, directory, listing.finals, meta)
        state.next_index = name.first_index
    first = view.header(0)
    start_bytes = first.frame_bytes if first else 0
    active = ActiveSegment(name, file, start_bytes, created_us, room)
    scanner = Scanner(view, str(name), name.first_index, BodyDecoder(meta.schema))
    folded = fold_segment(scanner, state, active, findings.damages)
    active.offset = folded.end
    if folded.open_group is not None:  # a group without its commit was never there
        active.offset, state = folded.open_group
        active.table.cut(active.offset)
    state.epoch = max(state.epoch, name.epoch)
    only_footer = scanner.ended and not folded.torn and _ends_there(view, scanner.offset, meta)
    _cut_tail(disk, directory, active, meta, clock, state.next_index, only_footer, findings)
    if active.offset == 0:  # nothing valid at all: begin it again
        file.close()
        state.epoch += 1
        carry_mark(disk, directory, name.epoch, state.epoch)
        active = prepare_active(disk, directory, meta, state, clock.now_us()).put(disk)
        disk.remove(directory / str(name))
    return active, meta, state


def _ends_there(view: View, footer_end: int, meta: Meta) -> bool:
    """Whether nothing follows a footer but its trailer. In a container something of an earlier life may."""
    if meta.settings.containers is not None:
        return True
    behind = footer_end + HEADER_BYTES
    return _end_of_bytes(view.file, behind, view.refresh()) == behind


@dataclass(slots=True)
class Folded:
    """Where a segment's good frames end (before its footer), and what is wrong with its tail.

    `open_group` says where a group without its commit starts, or bad frames before it, and the state there:
    the pieces of such a group prove nothing. `torn` that bad frames stand before the end, or the footer, and
    nothing proves that they were ever whole.
    """

    end: int = 0
    open_group: tuple[int, LogState] | None = None
    torn: bool = False


def fold_segment(
    scanner: Scanner, state: LogState, active: ActiveSegment | None, damages: list[Damage]
) -> Folded:
    """Fold a segment's frames into `state`, and its damages into `damages`."""
    folded = Folded()
    unproven: list[Damage] = []
    before: tuple[int, LogState] | None = None
    for found in scanner:
        if before is None and (isinstance(found, Damage) or found.header.grouped):
            before = found.offset, replace(state, commits=dict(state.commits))
        if isinstance(found, Damage):
            unproven.append(found)
            continue
        kind = found.header.kind
        if kind == Kind.FOOTER:
            break
        if found.header.grouped:
            folded.open_group = before
        else:
            damages += unproven
            unproven.clear()
            before = folded.open_group = None
        state.next_index = found.header.base_index
        if kind != Kind.START:
            state.apply(found.header, found.body.to_pybytes() if kind == Kind.COMMIT else b"")
        if active is not None and kind == Kind.BATCH:
            active.table.add(found.offset, found.header)
        folded.end = scanner.offset
    folded.torn = bool(unproven)
    return folded


def _cut_tail(
    disk: Disk,
    directory: Path,
    active: ActiveSegment,
    meta: Meta,
    clock: Clock,
    index: int,
    only_footer: bool,
    findings: _Findings,
) -> None:
    """Take off what follows the last good frame, keeping a copy of what is not just zeros or a footer."""
    file, start, stop = active.file, active.offset, active.file.size()
    containers = meta.settings.containers
    if containers:
        torn_until = stop if _torn_in_container(active, meta) else start
    else:
        torn_until = _end_of_bytes(file, start, stop)
    if torn_until > start and not only_footer:
        findings.cut_bytes, findings.cut_from_index = torn_until - start, index
        name = f"{active.name}.{start}"
        findings.kept_copy = keep_part(disk, directory, name, file, start, torn_until, clock)
        text = "%s: cut %d bytes of an unfinished write at index %d; a copy is in %s"
        _logger.warning(text, directory, findings.cut_bytes, index, findings.kept_copy)
    if containers is None and stop > start:
        file.truncate(start)
    elif torn_until > start:
        file.write([bytes(stop - start)], start)


def _end_of_bytes(file: File, start: int, stop: int) -> int:
    """Where the bytes end that are followed by nothing but zeros."""
    while stop > start:
        size = min(_PIECE_BYTES, stop - start)
        piece = file.read(size, stop - size).rstrip(b"\0")
        if piece:
            return stop - size + len(piece)
        stop -= size
    return start


def _torn_in_container(active: ActiveSegment, meta: Meta) -> bool:
    """A used container is full of its earlier life; only a frame of this one can be torn."""
    epoch, first_index = active.name.epoch, active.name.first_index
    view = View(active.file, salt=meta.salt, finalized=False, copying=True)
    found = find_frame(view, active.offset, lambda at, _: at.epoch >= epoch and at.base_index >= first_index)
    return found is not None


def state_after(disk: Disk, directory: Path, finals: tuple[FinalName, ...], meta: Meta) -> LogState:
    """The state behind the last finalized segment: its start frame and all its frames, folded."""
    if not finals:
        return LogState()
    last = finals[-1]
    with disk.opened(directory / str(last)) as file:
        view = View(file, salt=meta.salt, finalized=True, copying=meta.settings.containers is not None)
        state = LogState(next_index=last.first_index, head_key=last.first_key)
        with contextlib.suppress(Damaged):
            start = read_start(view, str(last))
            state, meta = start.state, start.meta
        fold_segment(Scanner(view, str(last), last.first_index, BodyDecoder(meta.schema)), state, None, [])
    state.next_index = last.next_index
    state.head_key = max(state.head_key, last.last_key)
    return state


def _write_again(active: ActiveSegment, durable_index: int) -> None:
    """After a failed sync the cache may hold what the disk does not: make it all dirty again.

    From the last batch on that was durable: the markers behind it may not have been.
    """
    row = active.table.row_of_index(durable_index - 1)
    _copy_onto_itself(active.file, active.table.offsets[row] if row >= 0 else 0, active.offset)


def _copy_onto_itself(file: File, offset: int, end: int) -> None:
    while offset < end:
        chunk = file.read(min(_PIECE_BYTES, end - offset), offset)
        file.write([chunk], offset)
        offset += len(chunk)
