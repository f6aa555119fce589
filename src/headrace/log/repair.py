"""Repairing: making a damaged log whole again, without its lost entries, and keeping the original.

Each damaged segment is written anew from its good frames, with a gap frame wherever entries are lost, so
that indexes stay what they were and readers pass over the gap knowing it. The damaged file goes to `kept/`
first. A missing segment becomes one that consists of a gap. A damaged meta.json is restored from the newest
segment that has a good start frame, a damaged start frame from another one of the schema that the batches
tell of. What was whole before is byte for byte the same after.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import Damaged, HeadraceError, NotALog, NotFound
from headrace.log.body import BodyDecoder, schema_tag
from headrace.log.damage import Damage, Report
from headrace.log.disk import Disk, File
from headrace.log.frame import HEADER_BYTES, Header, Kind, checksum, encode_header
from headrace.log.keep import keep_file, keep_part
from headrace.log.lock import WriterLock
from headrace.log.meta import COPY_OF, META_FILE, Meta, load_meta, save_meta
from headrace.log.open import Wanted, open_appender
from headrace.log.recover import recover, state_after
from headrace.log.scan import Frame, Scanner, find_frame
from headrace.log.segment_name import ActiveName, FinalName, Listing, SegmentName, parse_name
from headrace.log.start import encode_start, read_start
from headrace.log.state import LogState
from headrace.log.table import BatchTable, encode_ending
from headrace.log.verify import Progress, verify
from headrace.log.view import View


@dataclass(slots=True)
class RepairReport:
    """What was wrong, what was kept aside, and what a check of the repaired log says."""

    found: tuple[Damage, ...] = ()
    restored_meta: bool = False
    rewritten: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    after: Report | None = None


def repair(
    path: str | Path,
    *,
    progress: Progress | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> RepairReport:
    """Repair the log at `path`. Nobody may be writing to it."""
    disk, clock, directory = disk or Disk(), clock or SystemClock(), Path(path)
    kind = disk.kind(directory)
    if kind == "nothing":
        raise NotFound(f"there is no log at {directory}: check the path")
    if kind == "file":
        raise NotALog(f"{directory} is a file; a log is a directory: check the path")
    names = disk.names(directory)
    if META_FILE not in names and not any(parse_name(name) for name in names):
        raise NotALog(f"{directory} is not a log: it has neither a meta.json nor segments")
    report = RepairReport()
    lock = WriterLock.acquire(disk, directory)
    try:
        meta = _good_meta(disk, directory, report, clock)
        recovered = recover(disk, directory, meta, clock, copying=COPY_OF in meta.extra)
        recovered.active.file.close()
        if recovered.report.kept_copy:
            report.kept.append(recovered.report.kept_copy)
        before = verify(disk, directory, meta, progress)
        report.found = before.damages
        _repair_segments(disk, directory, meta, before, clock, report)
    finally:
        lock.release()
    # Opening it leaves out durable entries that are gone from its end, and writes a new mark.
    appender, _ = open_appender(disk, directory, Wanted(), clock, copying=COPY_OF in meta.extra)
    appender.close(clean=True)
    report.after = verify(disk, directory, meta, progress)
    return report


def _good_meta(disk: Disk, directory: Path, report: RepairReport, clock: Clock) -> Meta:
    try:
        return load_meta(disk, directory)
    except (Damaged, NotFound):
        listing = Listing.of(disk.names(directory))
    names: list[SegmentName] = [*([listing.active] if listing.active else []), *reversed(listing.finals)]
    for name in names:
        with disk.opened(directory / str(name)) as file:
            view = View(file, salt=0, finalized=False, copying=True)
            try:
                meta = read_start(view, str(name)).meta
            except HeadraceError:
                continue
        if (directory / META_FILE).exists():
            report.kept.append(keep_file(disk, directory, META_FILE, clock))
        save_meta(disk, directory, meta)
        report.restored_meta = True
        return meta
    raise Damaged(f"{directory}: neither meta.json nor any segment's start can be read: restore a backup")


def _repair_segments(
    disk: Disk, directory: Path, meta: Meta, before: Report, clock: Clock, report: RepairReport
) -> None:
    listing = Listing.of(disk.names(directory))
    for damage in before.damages:
        if damage.kind == "missing" and damage.stop_lost is not None and damage.stop_lost > damage.first_lost:
            _fill_gap(disk, directory, meta, damage.first_lost, damage.stop_lost, clock)
            report.rewritten.append(f"{damage.first_lost}-{damage.stop_lost - 1}")
    damaged = {damage.file for damage in before.damages if damage.kind not in ("missing", "mark")}
    inside = {damage.file for damage in before.damages if damage.kind not in ("missing", "mark", "cut")}
    for name in listing.finals:
        if str(name) in damaged:
            report.kept.append(_rewrite(disk, directory, meta, name, clock))
            report.rewritten.append(str(name))
    if listing.active is not None and str(listing.active) in inside:
        report.kept.append(_rewrite(disk, directory, meta, listing.active, clock))
        report.rewritten.append(str(listing.active))


class _Rewriter:
    """Lays good frames and gaps one after another into a new file."""

    def __init__(self, file: File, meta: Meta) -> None:
        self.file = file
        self.meta = meta
        self.offset = 0
        self.table = BatchTable()

    def put(self, header: Header, raw: bytes) -> None:
        self.file.write([raw], self.offset)
        if header.kind == Kind.BATCH:
            self.table.add(self.offset, header)
        self.offset += len(raw)

    def start(self, state: LogState, now_us: int) -> None:
        raw = encode_start(self.meta, state, now_us)
        self.put(Header(Kind.START, state.next_index), raw)

    def gap(self, first: int, stop: int, epoch: int, now_us: int) -> None:
        if stop > first:
            header = Header(Kind.GAP, first, 0, first, stop, now_us, epoch, 0, checksum(b""))
            self.put(header, encode_header(header, self.meta.salt))

    def end(self, next_index: int, epoch: int, now_us: int) -> None:
        containers = self.meta.settings.containers
        at = Header(Kind.FOOTER, next_index, time_us=now_us, epoch=epoch)
        size = containers.bytes if containers else None
        self.file.write([encode_ending(self.table, at, self.offset, size, self.meta.salt)], self.offset)


def _rewrite(disk: Disk, directory: Path, meta: Meta, name: SegmentName, clock: Clock) -> str:
    """Write a damaged segment anew from what is good in it; where the old one is kept."""
    path = directory / str(name)
    now_us = clock.now_us()
    epoch = name.epoch if isinstance(name, ActiveName) else 0
    temporary = path.with_name(path.name + ".tmp")
    with disk.opened(path) as source, disk.opened(temporary, write=True, create=True) as target:
        target.truncate(0)
        if meta.settings.containers:
            target.allocate(meta.settings.containers.bytes)
        view = View(source, salt=meta.salt, finalized=False, copying=True)
        try:
            meta = read_start(view, str(name)).meta
            started = True
        except Damaged:
            meta = _meta_of(disk, directory, meta, name, view)
            started = False
        tag = schema_tag(meta.schema)
        writer = _Rewriter(target, meta)
        if not started:
            finals = Listing.of(disk.names(directory)).finals
            earlier = tuple(final for final in finals if final.next_index <= name.first_index)
            state = state_after(disk, directory, earlier, meta)
            state.next_index = name.first_index
            writer.start(state, now_us)
            epoch = state.epoch
        scanner = Scanner(view, str(name), name.first_index, BodyDecoder(meta.schema))
        for found in scanner:
            if isinstance(found, Damage):
                writer.gap(found.first_lost, found.stop_lost or found.first_lost, epoch, now_us)
            elif found.header.kind == Kind.BATCH and found.header.schema_tag != tag:
                writer.gap(found.header.base_index, found.header.next_index, epoch, now_us)
            elif found.header.kind != Kind.FOOTER:
                epoch = found.header.epoch
                writer.put(found.header, _raw(found, meta))
        if isinstance(name, FinalName):
            writer.gap(scanner.next_index, name.next_index, epoch, now_us)
            writer.end(name.next_index, epoch, now_us)
        target.sync()
    with disk.opened(path) as source:
        kept = keep_part(disk, directory, str(name), source, 0, source.size(), clock)
    disk.rename(temporary, path)
    disk.sync_dir(directory)
    return kept


def _meta_of(disk: Disk, directory: Path, meta: Meta, name: SegmentName, view: View) -> Meta:
    """The meta of a segment whose start is damaged: the newest with the schema that its batches tell of."""

    def batch_here(header: Header, _: int) -> bool:
        return header.kind == Kind.BATCH and header.base_index >= name.first_index

    found = find_frame(view, HEADER_BYTES, batch_here)
    if found is None or found[1].schema_tag == schema_tag(meta.schema):
        return meta
    for other in reversed(Listing.of(disk.names(directory)).segments):
        with disk.opened(directory / str(other)) as file, contextlib.suppress(Damaged):
            start = read_start(View(file, salt=meta.salt, finalized=False, copying=True), str(other))
            if start.meta.id == meta.id and schema_tag(start.meta.schema) == found[1].schema_tag:
                return start.meta
    return meta


def _raw(frame: Frame, meta: Meta) -> bytes:
    return encode_header(frame.header, meta.salt) + bytes(frame.body)


def _fill_gap(disk: Disk, directory: Path, meta: Meta, first: int, stop: int, clock: Clock) -> None:
    """A segment that stands for one that is gone."""
    finals = Listing.of(disk.names(directory)).finals
    key = max((name.last_key for name in finals if name.next_index <= first), default=0)
    name = FinalName(first, stop - 1, key, key)
    temporary = directory / f"{name}.tmp"
    now_us = clock.now_us()
    with disk.opened(temporary, write=True, create=True) as file:
        writer = _Rewriter(file, meta)
        writer.start(LogState(next_index=first, head_key=key), now_us)
        writer.gap(first, stop, 1, now_us)
        writer.end(stop, 1, now_us)
        file.sync()
    disk.rename(temporary, directory / str(name))
    disk.sync_dir(directory)
