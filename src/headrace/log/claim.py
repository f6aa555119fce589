"""Claims: what a copy of a log says it has, and whether the log can go on from there.

A copy has the id of its source, and the very frames of it. Its claim is where it ends, and the header of its
last batch. That header is sealed together with the id, and tells the index, the time, the epoch and the
checksum of the entries; who cuts a log raises its epoch. So if the source has the same header at that
place, it has the same history before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.kernel.errors import Damaged, Diverged, NotFound, Trimmed
from headrace.kernel.limits import INDEX_MAX
from headrace.log.cursor import holding
from headrace.log.damage import Damage, DamagedEntries
from headrace.log.disk import Disk
from headrace.log.frame import Header, Kind
from headrace.log.frame_cursor import FrameReader
from headrace.log.meta import Meta
from headrace.log.segment_name import Listing, SegmentName
from headrace.log.segment_reader import Pause


@dataclass(frozen=True, slots=True)
class Claim:
    id: str
    next_index: int
    head_key: int = 0
    epoch: int = 0
    last: Header | None = None
    """The header of the last batch; None if there is no batch."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the log itself stands."""

    first_index: int
    settled_index: int
    epoch: int
    noun: str = "stream"
    """What it is, for people."""


def check_claim(disk: Disk, directory: Path, meta: Meta, claim: Claim, at: Standing) -> None:
    """Raise Diverged or Trimmed if a copy cannot go on from this log."""
    advice = f"drop the copy (`headrace {at.noun} drop`) and follow anew"
    if claim.id != meta.id:
        raise Diverged(
            f"the copy is of {claim.id}, and this is {meta.id}: the source was replaced by another {at.noun} "
            f"of that name: {advice}"
        )
    if claim.epoch > at.epoch:
        raise Diverged(
            f"the copy has seen epoch {claim.epoch} and the source is at {at.epoch}: one of them was cut, or "
            f"written to by itself: {advice}"
        )
    if claim.next_index < at.first_index:
        raise Trimmed(
            f"the source begins at index {at.first_index}: what the copy lacks from {claim.next_index} on "
            f"has been removed there: {advice}"
        )
    if claim.last is None:
        return
    here = _header_at(disk, directory, meta, claim.last.base_index)
    if here == "trimmed" or here == claim.last:
        return
    if isinstance(here, Header) and here.kind == Kind.GAP and here.next_index >= claim.last.next_index:
        return  # the source has lost what the copy has
    if here is None and at.settled_index > claim.last.base_index:
        raise Damaged(
            f"index {claim.last.base_index} of the source cannot be read: run `headrace log verify` there"
        )
    what = "ends before it" if here is None else "has others there"
    raise Diverged(
        f"the copy has entries at index {claim.last.base_index} and the source {what}: the source was cut "
        f"off behind the copy, or the copy was written to: {advice}"
    )


def _header_at(disk: Disk, directory: Path, meta: Meta, index: int) -> Header | str | None:
    """The header of the batch or gap that holds an index; "trimmed", or None if the log ends before it."""
    for _ in range(10):  # a segment may be renamed or removed between listing and opening
        name = holding(Listing.of(disk.names(directory)).segments, index)
        if name is None:
            return None
        if name.first_index > index:
            return "trimmed"
        try:
            return _header_in(disk, directory, meta, name, index)
        except NotFound:
            continue
    return None


def _header_in(disk: Disk, directory: Path, meta: Meta, name: SegmentName, index: int) -> Header | None:
    reader = FrameReader.open(disk, directory, name, meta)
    try:
        reader.seek(index)
        while isinstance(here := reader.header_here(), Header):
            if here.next_index > index:
                return here
            reader.skip(here)
        if isinstance(here, Damage):
            raise DamagedEntries(directory, here)
        return None
    finally:
        reader.close()


def last_batch(disk: Disk, directory: Path, meta: Meta) -> Header | None:
    """The header of the last batch in a log that nobody is writing to."""
    for name in reversed(Listing.of(disk.names(directory)).segments):
        reader = FrameReader.open(disk, directory, name, meta)
        last: Header | None = None
        try:
            reader.seek(INDEX_MAX)
            while not isinstance(here := reader.header_here(), Pause):
                if isinstance(here, Header):
                    reader.skip(here)
                    last = here if here.kind == Kind.BATCH else last
        finally:
            reader.close()
        if last is not None:
            return last
    return None
