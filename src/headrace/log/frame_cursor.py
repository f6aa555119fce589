"""Frame cursors: a log's frames as they are, in order, for those who copy it.

Like a cursor, but it answers every frame that a copy needs, header and body, checked and not decoded: the
start of each segment, batches, moves of HEAD, commits, gaps. What is left out is the business of each copy
itself: what is trimmed, footers, and HEADs that say again what stands.

Only settled frames are answered: never one that a power cut could take back. A sync that covers an index
covers all frames up to it, so the settled index decides; behind the last entry the settled HEAD does. A
commit without entries shows in neither: it waits until something settled follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.kernel.errors import Closed, Damaged, Trimmed
from headrace.log.cursor import Cursor
from headrace.log.damage import Damage
from headrace.log.disk import Disk
from headrace.log.frame import Header, Kind
from headrace.log.mark import Settled
from headrace.log.meta import Meta
from headrace.log.scan import Frame, whole_body
from headrace.log.segment_name import Listing
from headrace.log.segment_reader import Pause, SegmentReader

_MARKERS = (Kind.HEAD, Kind.COMMIT, Kind.BASE)


class FrameReader(SegmentReader):
    """One segment, frame by frame."""

    def start(self) -> Frame:
        """The start frame, which says what the frames after it are."""
        header = self._view.header(0)
        body = None if header is None else whole_body(self._view, 0, header, self._decoder)
        if header is None or body is None or header.kind != Kind.START:
            raise Damaged(f"{self.name} has a damaged start frame: run `headrace log repair` there")
        return Frame(0, header, body)

    def rewind(self) -> None:
        """Back to the first frame."""
        self._offset, self.expected = 0, self.name.first_index

    def frame(self, header: Header) -> Frame | Damage | Pause:
        """The whole frame whose header is the next one; the reader stands behind it then."""
        body = whole_body(self._view, self._offset, header, self._decoder)
        if body is None:
            return self.damage_here("body", "the body is damaged") if self._settled() else Pause.NOT_YET
        frame = Frame(self._offset, header, body)
        self._pass(header)
        return frame

    def skip(self, header: Header) -> None:
        """Pass the frame whose header is the next one without a look at its body."""
        self._pass(header)

    def markers_after(self, header: Header) -> list[Header]:
        """The headers of the markers that follow the next frame, up to the next batch."""
        found, offset = list[Header](), self._offset + header.frame_bytes
        while (at := self._view.header(offset)) is not None and at.kind in _MARKERS:
            found.append(at)
            offset += at.frame_bytes
        return found


class FrameCursor(Cursor):
    """From the first frame on, or (`begin_at`) from where a copy ends."""

    reader = FrameReader
    _segment: FrameReader | None

    def __init__(self, disk: Disk, directory: Path, meta: Meta, settled: Callable[[], Settled]) -> None:
        super().__init__(disk, directory, meta)
        self._read_settled = settled
        self._settled = settled()
        self._from: int | None = None
        self._in_group = False
        self._skips_group = False

    def begin_at(self, next_index: int, head_key: int, last: Header | None) -> None:
        """Answer only what a copy lacks which ends at an index and a HEAD; `last` is its last batch.

        Reading begins at that batch: markers may follow it which the copy does not have.
        """
        self._from, self._head_key = next_index, head_key
        self.index = next_index if last is None else last.base_index

    @property
    def salt(self) -> int:
        return self._meta.salt

    def next_frame(self) -> Frame | None:
        """The next frame for the copy, or None if there is none that is settled."""
        if self.stopped:
            raise Closed(f"this cursor on {self._directory} is closed")
        while True:
            if self._segment is None:
                self._settled = self._read_settled()  # before: the log may be cut, and written anew
                return self._segment.start() if self._open_next() and self._segment else None
            if not self._segment.finalized and not self._segment.linked:
                self._leave_segment(self.index)  # replaced by a truncation or take-over
                continue
            step: object = self._segment.header_here()
            if isinstance(step, Header):
                if not self._is_settled(step):
                    return None
                step = self._segment.frame(step)
            self._looked_twice &= step is Pause.NOT_YET
            if isinstance(step, Frame):
                if self._wanted(step.header):
                    return step
            elif isinstance(step, Damage):
                if not self._recycled():
                    self._tell(step)
            elif step is Pause.END:
                self._leave_segment(self._segment.expected)
            elif not self._look_again():
                return None

    def _open_next(self) -> bool:
        if not self._open_segment():
            return False
        assert self._segment is not None
        if self._from is None:  # all of the first segment, though some of it may be trimmed
            self._segment.rewind()
            self._from = self.index = self._segment.expected
        return True

    def _skip_trimmed(self, listing: Listing) -> None:
        try:
            super()._skip_trimmed(listing)
        except Trimmed:
            if self._from is None or self.index >= self._from:
                raise
            self.index = self._from  # of the last batch that the copy has, something was trimmed
            super()._skip_trimmed(listing)

    def _wanted(self, header: Header) -> bool:
        """Whether the copy needs this frame, which has been read."""
        assert self._from is not None
        kind, ends_group = header.kind, self._in_group
        self._in_group = header.grouped
        if kind in (Kind.BATCH, Kind.GAP):
            new = header.next_index > self._from
            self._skips_group = header.grouped and not new
            self.index = max(self.index, header.next_index)
            if kind == Kind.BATCH:
                self._epoch = header.epoch
                self._head_key = max(self._head_key, header.last_key)
            return new
        if kind == Kind.HEAD:
            moved = header.last_key > self._head_key
            self._head_key = max(self._head_key, header.last_key)
            return moved
        known = header.base_index < self._from or (ends_group and self._skips_group)
        return kind == Kind.COMMIT and not known

    def _is_settled(self, header: Header) -> bool:
        if self._within(header):
            return True
        self._settled = self._read_settled()
        return self._within(header)

    def _within(self, header: Header) -> bool:
        settled = self._settled
        if header.next_index != settled.next_index:
            return header.next_index < settled.next_index
        if header.kind == Kind.HEAD:
            return header.last_key <= settled.head_key
        if header.kind != Kind.COMMIT or self._in_group:
            return True
        assert self._segment is not None
        later = self._segment.markers_after(header)
        return any(
            each.kind == Kind.HEAD and self._head_key < each.last_key <= settled.head_key for each in later
        )
