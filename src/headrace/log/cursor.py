"""Cursors: reading a log forward from an index, through finalized segments into the active one.

A cursor takes no lock and leaves no trace, so any number of them read in any process while the log is
being written. `next()` answers the next thing in the log: a `Batch`, a `Head`, or None when there is
nothing more *yet*; `wait()` sleeps until there may be.

Damage is never passed over in silence: it goes to `on_damage`, or is raised. Either way the cursor stands
behind the damaged place afterwards, so reading goes on with everything that is whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.kernel.errors import Closed, NotFound, Trimmed, Truncated
from headrace.log.damage import Damage, DamagedEntries
from headrace.log.disk import Disk
from headrace.log.mark import MARK_FILE, Extent, Mark, believable
from headrace.log.meta import Meta
from headrace.log.recover import newest_epoch, trimmed_before
from headrace.log.segment_name import FinalName, Listing, SegmentName
from headrace.log.segment_reader import Batch, Head, Pause, SegmentReader
from headrace.log.wake import Watch, watch

OnDamage = Callable[[Damage], None]


class Cursor:
    reader = SegmentReader
    """What reads one segment."""

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
        self.stopped = False
        self._disk = disk
        self._directory = directory
        self._meta = meta
        self._columns = columns
        self._on_damage = on_damage
        self._mark = Mark.open(disk, directory, write=False)
        self._segment: SegmentReader | None = None
        self._ahead: list[FinalName] = []
        """Finalized segments after this one, the nearest last, as they were when the directory was read."""
        self._ahead_epoch = 0
        self._epoch: int | None = None
        """Of the last batch that was delivered."""
        self._told: Damage | None = None
        self._head_key = -1
        self._looked_twice = False
        self._watch: Watch | None = None
        self._seen = 0

    def next(self) -> Batch | Head | None:
        """What comes next, or None if that is not there yet."""
        if self.stopped:
            raise Closed(f"this cursor on {self._directory} is closed")
        if self._watch is not None:
            self._seen = self._watch.seen()
        while True:
            if self._segment is None and not self._open_segment():
                return None
            assert self._segment is not None
            if not self._segment.finalized and not self._segment.linked:
                self._leave_segment(self.index)  # replaced by a truncation or take-over
                continue
            step = self._segment.step(self.index)
            self._looked_twice &= step is Pause.NOT_YET
            if isinstance(step, Batch):
                batch = step if step.base_index >= self.index else step.slice(self.index)
                self.index, self._epoch = batch.next_index, batch.epoch
                return batch
            if isinstance(step, Head):
                if step.key > self._head_key:  # a new segment says again what stands
                    self._head_key = step.key
                    return step
                continue
            if isinstance(step, Damage):
                if not self._recycled():
                    self._tell(step)
            elif step is Pause.END:
                self._leave_segment(self._segment.expected)
            elif not self._look_again():
                return None

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until the log moves after the last `next()`; False when the timeout came first."""
        if self.stopped:
            return False
        if self._watch is None:
            self._watch = watch(self._directory / MARK_FILE)
            self._seen = self._watch.seen()
            return True  # it may have moved before there was a watch: look again
        moved = self._watch.wait(self._seen, timeout)
        self._seen = self._watch.seen()
        return moved

    def wait_open(self) -> bool:
        """Sleep until the log moves; False when that is because this cursor was stopped."""
        self.wait()
        return not self.stopped

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
        if self._open_ahead():
            return True
        for _ in range(10):  # a segment may be renamed or removed between listing and opening
            epoch = self._extent().epoch
            listing = Listing.of(self._disk.names(self._directory))
            if listing.segments:
                self._skip_trimmed(listing)
            name = holding(listing.segments, self.index)
            if name is None:
                if self._durable(listing) <= self.index:
                    return False
                continue
            try:
                segment = self.reader.open(self._disk, self._directory, name, self._meta, self._columns)
                self._check_history(listing)
            except NotFound:
                continue
            if name.first_index > self.index:
                lost = (self.index, name.first_index)
                what = "the segment before this one is missing"
                self._segment = segment
                self._tell(Damage("missing", str(name), 0, 0, *lost, what))
            segment.seek(self.index)
            self._segment = segment
            later = bisect_left(listing.finals, self.index, key=lambda final: final.first_index)
            self._ahead = list(reversed(listing.finals[later:]))
            self._ahead_epoch = epoch
            return True
        durable_index = self._durable(Listing.of(self._disk.names(self._directory)))
        if durable_index > self.index:
            what = "the segment with the newest entries is missing"
            self._tell(Damage("cut", self._directory.name, 0, 0, self.index, durable_index, what))
        return False

    def _open_ahead(self) -> bool:
        """Go on with the segment that is known to come next: a log of thousands of them is listed once.

        Finalized segments never change. One that is gone, trimmed or cut off, is not found; and what was
        delivered before it can only have been cut off together with it.
        """
        while self._ahead and self._ahead[-1].first_index < self.index:
            self._ahead.pop()
        if not self._ahead or self._ahead[-1].first_index != self.index:
            return False
        if self._extent().epoch != self._ahead_epoch:  # cut, or taken over: read the directory again
            self._ahead.clear()
            return False
        name = self._ahead.pop()
        try:
            self._segment = self.reader.open(self._disk, self._directory, name, self._meta, self._columns)
        except NotFound:
            self._ahead.clear()
            return False
        return True

    def _skip_trimmed(self, listing: Listing) -> None:
        extent = self._mark.read()
        first = listing.segments[0].first_index
        base = first if extent is None else extent.base_index
        if self.index <= base < first:  # missing, unless the mark is older than the trimming
            base = max(base, trimmed_before(self._disk, self._directory, listing, self._meta))
        if self.index < base:
            if self.index > 0:
                raise Trimmed(f"{self._directory} begins at index {base}: {self.index} has been removed")
            self.index = base

    def _check_history(self, listing: Listing) -> None:
        """Raise Truncated if what was delivered last is not in the log any more, or was written anew.

        Batches keep the epoch they were first written in, through truncations and take-overs.
        """
        if self._epoch is None or self._extent().epoch <= self._epoch:
            return
        name = holding(listing.segments, self.index - 1)
        if name is None or name.first_index > self.index - 1 or self._extent().base_index >= self.index:
            return
        before = SegmentReader.open(self._disk, self._directory, name, self._meta, self._columns)
        try:
            before.seek(self.index - 1)
            step = before.step(self.index - 1)
            while isinstance(step, Head):
                step = before.step(self.index - 1)
        finally:
            before.close()
        rewritten = isinstance(step, Batch) and step.epoch > self._epoch
        if rewritten or step is Pause.NOT_YET:
            raise Truncated(
                f"{self._directory} was cut off below index {self.index}, where a reader had been"
            )

    def _recycled(self) -> bool:
        """Whether the container under this cursor has gone on to another life: then leave it."""
        assert self._segment is not None
        if self._meta.settings.containers is None:
            return False
        if self._segment.name in Listing.of(self._disk.names(self._directory)).segments:
            return False
        self._leave_segment(self.index)
        return True

    def _leave_segment(self, reached: int) -> None:
        assert self._segment is not None
        self.index = max(self.index, reached)
        self._segment.close()
        self._segment = None

    def _look_again(self) -> bool:
        """At the end of what is there: True if something changed and reading can go on."""
        segment, extent = self._segment, self._extent()
        assert segment is not None
        replaced = extent.epoch > segment.epoch and self._recycled()
        if replaced or extent.next_index <= segment.expected:
            return replaced
        if not self._looked_twice:  # the mark is written after the frame: now it must be there
            self._looked_twice = True
            return True
        if segment.name not in Listing.of(self._disk.names(self._directory)).segments:
            self._leave_segment(self.index)
            return True
        known = believable(extent, segment.epoch)
        step = segment.damage_here("header", "no valid frame", known.durable_index if known else None)
        if isinstance(step, Damage) and step != self._told:
            self._tell(step)
            return True
        return False

    def _durable(self, listing: Listing) -> int:
        """What the mark calls durable, unless it is from before a truncation."""
        epoch = newest_epoch(self._disk, self._directory, listing, self._meta)
        known = believable(self._mark.read(), epoch)
        return known.durable_index if known else 0

    def _extent(self) -> Extent:
        return self._mark.read() or Extent()

    def stop(self) -> None:
        """From any thread: wake who waits, and let every later call raise Closed."""
        self.stopped = True
        if self._watch is not None:
            self._watch.wake()

    def close(self) -> None:
        """By the thread that reads: stop, and let the files go."""
        self.stop()
        if self._watch is not None:
            self._watch.close()
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        self._mark.close()


def holding(segments: list[SegmentName], index: int) -> SegmentName | None:
    """The segment that holds `index`, or the first one after it if none does."""
    for name in segments:
        if not isinstance(name, FinalName) or name.last_index >= index:
            return name
    return None
