"""Scanning: walking a segment frame by frame, and getting over damage.

At each place the next frame must be valid (see `frame`), have the expected index and an epoch that does
not go back. Where that fails the scanner looks on, 64 bytes at a time, for the next frame that could
belong there; if there is one, what lies between is damage, and the index of the found frame tells exactly
which entries are lost. If there is none, the rest of the segment is its tail: for the caller to judge,
because only the tail of an active segment may be torn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.log.body import BodyDecoder
from headrace.log.damage import Damage, DamageKind
from headrace.log.frame import HEADER_BYTES, MAGIC, Header, Kind, checksum
from headrace.log.view import View

_SEARCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Frame:
    """One valid frame of a segment and where it stands."""

    offset: int
    header: Header
    body: pa.Buffer


class Scanner:
    """Iterates over the frames and damages of one segment from its start.

    Afterwards `offset` and `next_index` tell where the valid frames ended, and `ended` whether that was
    by a footer.
    """

    def __init__(self, view: View, name: str, first_index: int, decoder: BodyDecoder) -> None:
        self._view = view
        self._name = name
        self._decoder = decoder
        self._epoch = 0
        self.offset = 0
        self.next_index = first_index
        self.ended = False

    def __iter__(self) -> Iterator[Frame | Damage]:
        while not self.ended:
            frame = self._frame_at(self.offset)
            if isinstance(frame, Frame):
                self._pass(frame)
                yield frame
                continue
            found = find_frame(self._view, self.offset + HEADER_BYTES, self._goes_on)
            if found is None:
                return
            frame = self._frame_at(self.offset)
            if isinstance(frame, Frame):
                continue  # it was written while this looked on, and what was found after it
            offset, header = found
            kind = "start" if self.offset == 0 else frame.kind
            size = offset - self.offset
            lost = (self.next_index, header.base_index)
            yield Damage(kind, self._name, self.offset, size, *lost, frame.what)
            self.offset, self.next_index = offset, header.base_index

    def _pass(self, frame: Frame) -> None:
        self.offset = frame.offset + frame.header.frame_bytes
        self.next_index = frame.header.next_index
        self._epoch = frame.header.epoch
        self.ended = frame.header.kind == Kind.FOOTER

    def _frame_at(self, offset: int) -> Frame | _Wrong:
        header = self._view.header(offset)
        if header is None:
            return _Wrong("header", "no valid frame header")
        follows = may_follow(header, offset, self.next_index, self._epoch)
        if not follows or header.base_index != self.next_index:
            return _Wrong("header", f"a frame for index {header.base_index} in the wrong place")
        body = whole_body(self._view, offset, header, self._decoder)
        if body is None:
            return _Wrong("body", "the body is cut off or does not match its checksum")
        return Frame(offset, header, body)

    def _goes_on(self, header: Header, offset: int) -> bool:
        """Whether a place after a bad one holds a frame that proves the bad one to be damage.

        The whole of it must be good: behind a torn tail there may be a good header with a torn body.
        """
        follows = may_follow(header, offset, self.next_index, self._epoch)
        return follows and whole_body(self._view, offset, header, self._decoder) is not None


def whole_body(view: View, offset: int, header: Header, decoder: BodyDecoder) -> pa.Buffer | None:
    """The body of the frame at `offset`, if all of it is there and as it was written."""
    body = view.body(offset, header)
    if body is None:
        return None
    by_columns = header.kind == Kind.BATCH
    intact = decoder.intact(header, body) if by_columns else checksum(body) == header.body_sum
    return body if intact else None


def may_follow(header: Header, offset: int, expected_index: int, epoch: int) -> bool:
    """Whether a valid header at `offset` can belong to what comes after an index and an epoch."""
    return (
        header.base_index >= expected_index
        and header.epoch >= epoch
        and (header.kind == Kind.START) == (offset == 0)
        and header.kind != Kind.TRAILER
    )


def find_frame(view: View, offset: int, fits: Callable[[Header, int], bool]) -> tuple[int, Header] | None:
    """The next place from `offset` on that holds a valid header which `fits`, and that header."""
    offset += -offset % HEADER_BYTES
    while offset < view.size:
        chunk = view.raw(offset, min(_SEARCH_BYTES, view.size - offset))
        at = chunk.find(MAGIC)
        while at >= 0:
            if (offset + at) % HEADER_BYTES == 0:
                header = view.header(offset + at)
                if header is not None and fits(header, offset + at):
                    return offset + at, header
            at = chunk.find(MAGIC, at + 1)
        offset += len(chunk) or HEADER_BYTES
    return None


@dataclass(frozen=True, slots=True)
class _Wrong:
    kind: DamageKind
    what: str
