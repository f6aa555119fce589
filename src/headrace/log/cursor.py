"""Cursors: reading a log forward from an index, through finalized segments into the active one.

A cursor takes no lock and leaves no trace, so any number of them read in any process while the log is
being written. `next()` answers the next thing in the log: a `Batch`, a `Head`, or None when there is
nothing more *yet*; `wait()` sleeps until there may be.

Damage is never passed over in silence: it goes to `on_damage`, or is raised. Either way the cursor stands
behind the damaged place afterwards, so reading goes on with everything that is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.kernel.errors import Closed, NotFound, Trimmed, Truncated
from headrace.log.damage import Damage, DamagedEntries
from headrace.log.disk import Disk
from headrace.log.mark import MARK_FILE, Extent, Mark
from headrace.log.meta import Meta
from headrace.log.segment_name import FinalName, Listing, SegmentName
from headrace.log.segment_reader import Batch, Head, Pause, SegmentReader
from headrace.log.wake import Watch, watch

OnDamage = Callable[[Damage], None]


class Cursor:
    def __init__(
        self,
        disk: Disk,
        directory: Path,
        meta: Meta,
        start: int = 0,
        *,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> None:
        self.index = start
        """The next index to be read. 0 means the oldest entry that is kept."""
        self.closed = False
        self._disk = disk
        self._directory = directory
        self._meta = meta
        self._columns = columns
        self._on_damage = on_damage
        self._mark = Mark.open(disk, directory, write=False)
        self._segment: SegmentReader | None = None
        self._delivered = False
        self._told: Damage | None = None
        self._looked_twice = False
        self._watch: Watch | None = None
        self._seen = 0

    def next(self) -> Batch | Head | None:
        """What comes next, or None if that is not there yet."""
        if self.closed:
            raise Closed(f"this cursor on {self._directory} is closed")
        if self._watch is not None:
            self._seen = self._watch.seen()
        while True:
            if self._segment is None and not self._open_segment():
                return None
            assert self._segment is not None
            step = self._segment.step(self.index)
            self._looked_twice &= step is Pause.NOT_YET
            if isinstance(step, Batch):
                batch = step if step.base_index >= self.index else step.slice(self.index)
                self.index, self._delivered = batch.next_index, True
                return batch
            if isinstance(step, Head):
                return step
            if isinstance(step, Damage):
                self._tell(step)
            elif step is Pause.END:
                self._leave_segment(self._segment.expected)
            elif not self._look_again():
                return None

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the log moves after the last `next()`; False when the timeout came first."""
        if self._watch is None:
            if self.closed:
                return False
            self._watch = watch(self._directory / MARK_FILE)
            self._seen = self._watch.seen()
            return True  # it may have moved before there was a watch: look again
        moved = self._watch.wait(self._seen, timeout)
        self._seen = self._watch.seen()
        return moved

    def wait_open(self) -> bool:
        """Sleep until the log moves; False when that is because this cursor was closed."""
        if not self.closed:
            self.wait()
        return not self.closed

    def back_to(self, index: int) -> None:
        """Go back to `index`."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self.index = index

    def _tell(self, damage: Damage) -> None:
        if damage == self._told or not damage.entries_lost:
            return
        self._told = damage
        if damage.kind != "cut" and damage.stop_lost is not None:
            self.index = max(self.index, damage.stop_lost)
        if self._on_damage is None:
            raise DamagedEntries(self._directory, damage)
        self._on_damage(damage)

    # --- from segment to segment

    def _open_segment(self) -> bool:
        """Open the segment that holds the next index; False if there is none yet."""
        for _ in range(10):  # a segment may be renamed or removed between listing and opening
            listing = Listing.of(self._disk.names(self._directory))
            if not listing.segments:
                return False
            self._skip_trimmed(max(listing.segments[0].first_index, self._extent().base_index))
            name = _holding(listing.segments, self.index)
            if name is None:
                return False
            try:
                segment = SegmentReader.open(self._disk, self._directory, name, self._meta, self._columns)
            except NotFound:
                continue
            if name.first_index > self.index:
                lost = (self.index, name.first_index)
                what = "the segment before this one is missing"
                self._segment = segment
                self._tell(Damage("missing", str(name), 0, 0, *lost, what))
            segment.seek(self.index)
            self._segment = segment
            return True
        return False

    def _skip_trimmed(self, base: int) -> None:
        if self.index < base:
            if self.index > 0:
                raise Trimmed(f"{self._directory} begins at index {base}: {self.index} has been removed")
            self.index = base

    def _leave_segment(self, reached: int) -> None:
        assert self._segment is not None
        self.index = max(self.index, reached)
        self._segment.close()
        self._segment = None

    def _look_again(self) -> bool:
        """At the end of what is there: True if something changed and reading can go on."""
        segment, extent = self._segment, self._extent()
        assert segment is not None
        if not segment.linked:  # replaced by a truncation or take-over, or trimmed
            self._leave_segment(self.index)
            return True
        if extent.next_index < self.index and self._delivered and extent.epoch:
            raise Truncated(
                f"{self._directory} was cut to index {extent.next_index} behind a reader at {self.index}"
            )
        if extent.next_index <= segment.expected:
            return False
        if not self._looked_twice:  # the mark is written after the frame: now it must be there
            self._looked_twice = True
            return True
        listing = Listing.of(self._disk.names(self._directory))
        if segment.name not in listing.segments:
            successor = _holding(listing.segments, segment.expected)
            if successor is not None and successor.first_index != segment.name.first_index:
                self._leave_segment(self.index)
                return True
        step = segment.damage_here("header", "no valid frame", extent.durable_index)
        if isinstance(step, Damage) and step != self._told:
            self._tell(step)
            return True
        return False

    def _extent(self) -> Extent:
        return self._mark.read() or Extent()

    def close(self) -> None:
        """Stop: who waits in another thread is woken."""
        self.closed = True
        if self._watch is not None:
            self._watch.close()
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self._mark.close()


def _holding(segments: list[SegmentName], index: int) -> SegmentName | None:
    """The segment that holds `index`, or the first one after it if none does."""
    for name in segments:
        if not isinstance(name, FinalName) or name.last_index >= index:
            return name
    return None
