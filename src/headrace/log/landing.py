"""Landing: frames that came from elsewhere are checked and appended as they are. See `copy`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

from headrace.kernel.errors import BadFrame, Broken
from headrace.log.appender import Appender
from headrace.log.body import BodyDecoder, schema_tag
from headrace.log.frame import Header, Kind
from headrace.log.frame_stream import Sent
from headrace.log.framing import Frames
from headrace.log.state import Commit, decode_commit, encode_commit

_PORTION_BYTES = 32 << 20
"""So much of a group is kept in memory; what is beyond is written before its end has come."""


class Landing:
    """Frames of one schema. `next_index`, `head_key` and `epoch` count what is on its way, too."""

    def __init__(self, appender: Appender, last: Header | None) -> None:
        self.last = last
        """The header of the last batch that is in the log."""
        self.schema = appender.meta.schema
        """Of the active segment. A full disk may have kept that from changing though the meta has."""
        self._appender = appender
        self._decoder = BodyDecoder(self.schema)
        self._tag = schema_tag(self.schema)
        self._ready = Frames()
        self._group = Frames()
        self._portions: list[Frames] = []
        """Of a large group: what is written and does not count yet."""
        self._group_offset = 0
        self._reset()

    def land(self, sent: Sequence[Sent]) -> None:
        try:
            for each in sent:
                self._check(each)
        finally:
            if not self._portions:
                self._take_ready()

    def end_segment(self) -> None:
        """A segment of the source ended: a group that has lost its commit is over as well."""
        if not self._in_group:
            return
        _join(self._ready, self._group)
        self._group = Frames()
        if self._portions:
            self._finish_large()
        else:
            self._take_ready()
        self._appender.roll()  # or recovery would take it for one that was never finished

    def recall(self, commits: Iterable[Commit]) -> None:
        """Take what a segment of the source remembers: commits without entries may be in no frame now."""
        frames, known = Frames(), self._appender.state.commits
        for commit in commits:
            mine = known.get(commit.writer)
            if commit.base_index == commit.next_index and (mine is None or mine.sequence < commit.sequence):
                at = self.next_index, self.head_key
                self._appender.framing.add_marker(frames, Kind.COMMIT, *at, body=encode_commit(commit))
        if frames.headers and not self._in_group:
            self._appender.take(frames)

    def abandon(self) -> None:
        """Forget the group that is open, and what is on its way."""
        if self._portions:
            headers = [header for portion in self._portions for header in portion.headers]
            try:
                self._appender.active.take_back(self._group_offset, headers)
            except Broken as error:
                raise self._appender.fail(error) from error
        self._ready, self._group, self._portions = Frames(), Frames(), []
        self._reset()

    @property
    def in_large_group(self) -> bool:
        """Whether what is written goes on with a group: nothing else may come between."""
        return bool(self._portions)

    @property
    def _in_group(self) -> bool:
        return bool(self._group.headers or self._portions)

    # --- is it what must come next?

    def _check(self, sent: Sent) -> None:
        header = sent.header
        match header.kind:
            case Kind.BATCH:
                self._check_batch(sent)
            case Kind.HEAD:
                self._check_place(header)
                if header.last_key <= self.head_key:
                    return  # the copy has it
                self._add(header, sent)
            case Kind.COMMIT:
                self._check_place(header)
                self._check_commit(sent)
            case Kind.GAP:
                self._check_gap(header)
            case _:
                raise BadFrame(f"a frame of kind {header.kind} came, which is no business of a copy")

    def _check_place(self, header: Header) -> None:
        if header.base_index != self.next_index:
            raise BadFrame(f"a frame for index {header.base_index} came where {self.next_index} is next")
        if header.epoch < self.epoch:
            raise BadFrame(f"the frame for index {header.base_index} is of an epoch that is over")

    def _check_batch(self, sent: Sent) -> None:
        header = sent.header
        self._check_place(header)
        keys = header.first_key, header.last_key
        by_index = self.next_index, self.next_index + header.entries - 1
        ordered = self.head_key <= keys[0] <= keys[1] if self._appender.meta.order_by else keys == by_index
        if header.entries < 1 or not ordered:
            raise BadFrame(f"the order keys of the frame for index {header.base_index} go back")
        if header.schema_tag != self._tag:
            raise BadFrame(f"the frame for index {header.base_index} is of a schema that was not told")
        if not self._decoder.intact(header, pa.py_buffer(sent.body)):
            raise BadFrame(f"the frame for index {header.base_index} came damaged: the line is asked again")
        self._add(header, sent)

    def _check_commit(self, sent: Sent) -> None:
        try:
            commit = decode_commit(bytes(sent.body))
        except msgspec.MsgspecError as error:
            raise BadFrame(f"a commit that cannot be read ({error})") from error
        behind = self.next_index - commit.next_index
        if behind < 0 or (behind and commit.base_index < commit.next_index):
            raise BadFrame(f"a commit of entries up to {commit.next_index} came at {self.next_index}")
        known = self._appender.state.commits.get(commit.writer)
        if not self._in_group and known is not None and commit.sequence <= known.sequence:
            return  # the copy has it
        self._add(sent.header, sent, bytes(sent.body))

    def _check_gap(self, header: Header) -> None:
        if header.base_index > self.next_index:
            raise BadFrame(f"a gap from index {header.base_index} on came where {self.next_index} is next")
        if header.last_key <= self.next_index:
            return  # the copy has what the source has lost
        index = self.next_index
        mine = header._replace(base_index=index, first_key=index, epoch=max(header.epoch, self.epoch))
        self._add(mine, None)

    # --- on its way into the log

    def _add(self, header: Header, sent: Sent | None, body: bytes = b"") -> None:
        if not header.grouped and self._group.headers:
            _join(self._ready, self._group)
            self._group = Frames()
        frames = self._group if header.grouped else self._ready
        if sent is None:
            frames.add(header, self._appender.meta.salt, [])
        else:
            _put(frames, sent, body)
        self.next_index, self.epoch = header.next_index, header.epoch
        if header.kind in (Kind.BATCH, Kind.HEAD):
            self.head_key = header.last_key
        if self._group.size_bytes >= _PORTION_BYTES:
            self._write_portion()
        elif self._portions and not header.grouped:
            self._finish_large()

    def _take_ready(self) -> None:
        if self._ready.headers:
            ready, self._ready = self._ready, Frames()
            self._appender.check()
            self._appender.take(ready)
            self._remember(ready)

    def _write_portion(self) -> None:
        if not self._portions:
            self._take_ready()
            self._appender.check()
            self._appender.make_room(Frames())
            self._group_offset = self._appender.active.offset
        self._appender.write(self._group)
        self._group.parts.clear()
        self._portions.append(self._group)
        self._group = Frames()

    def _finish_large(self) -> None:
        self._appender.write(self._ready)
        for portion in (*self._portions, self._ready):
            self._appender.apply(portion)
            self._remember(portion)
        self._appender.write_mark()
        self._ready, self._portions = Frames(), []

    def _remember(self, frames: Frames) -> None:
        self.last = next((each for each in reversed(frames.headers) if each.kind == Kind.BATCH), self.last)

    def _reset(self) -> None:
        state = self._appender.state
        self.next_index, self.head_key, self.epoch = state.next_index, state.head_key, state.epoch


def _put(frames: Frames, sent: Sent, body: bytes) -> None:
    """Add a frame as it came."""
    frames.headers.append(sent.header)
    frames.parts.append(sent.raw)
    frames.bodies.append(body)
    frames.size_bytes += sent.header.frame_bytes
    frames.batches += sent.header.kind == Kind.BATCH


def _join(frames: Frames, more: Frames) -> None:
    frames.headers += more.headers
    frames.parts += more.parts
    frames.bodies += more.bodies
    frames.size_bytes += more.size_bytes
    frames.batches += more.batches
