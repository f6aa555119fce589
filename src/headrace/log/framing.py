"""Framing: batches and markers become frames that are ready to be written.

Nothing here touches the disk or moves the state: frames are made for a log that ends somewhere, and count
only once somebody has written them. So what is refused (a key that goes back, a batch that is too large)
is refused before anything has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from headrace.kernel.clock import Clock
from headrace.kernel.errors import KeyOrder, TooLarge
from headrace.kernel.limits import BATCH_BYTES_MAX, INDEX_MAX
from headrace.log.body import BodyEncoder
from headrace.log.disk import BytesLike
from headrace.log.frame import BATCH, HEADER_BYTES, Header, Kind, checksum, encode_header, marks, padding
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.log.state import LogState


class Frames:
    """Frames that are written together. `bodies` is what the state needs of each: that of a marker."""

    __slots__ = ("batches", "bodies", "headers", "parts", "size_bytes")

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.parts: list[BytesLike] = []
        self.bodies: list[bytes] = []
        self.size_bytes = 0
        self.batches = 0

    def add(self, header: Header, salt: int, pieces: Sequence[BytesLike], body: bytes = b"") -> None:
        self.size_bytes += HEADER_BYTES + header.body_bytes
        self.batches += header.kind == BATCH
        self.headers.append(header)
        self.parts.append(encode_header(header, salt))
        self.parts.extend(pieces)
        self.bodies.append(body)


class End(NamedTuple):
    """Where the log ends, or will when frames that are being made are written."""

    next_index: int
    head: int
    last: int | None

    @classmethod
    def of(cls, state: LogState) -> End:
        return cls(state.next_index, state.head_key, state.last_key)


class Framing:
    """Makes the frames of one log as its meta says."""

    def __init__(self, meta: Meta, state: LogState, clock: Clock) -> None:
        self._meta = meta
        self._salt = meta.salt
        self._state = state
        self._clock = clock
        self._encoder = BodyEncoder(meta.schema, meta.settings.compression)
        self.key = KeyColumn(meta.schema, meta.order_by) if meta.order_by else None

    def add_batches(
        self, frames: Frames, batches: Sequence[pa.RecordBatch], end: End, *, grouped: bool
    ) -> End:
        """Add a frame for each batch; where the log will end then."""
        index, head, last = end
        group = marks(grouped=grouped)
        for records in batches:
            body = self._encoder.encode(records)
            if body.body_bytes > BATCH_BYTES_MAX:
                raise TooLarge(f"a batch of {body.body_bytes} bytes: at most {BATCH_BYTES_MAX} fit one frame")
            rows = records.num_rows
            first_key, last_key = index, index + rows - 1
            if self.key is not None:
                first_key, last_key = self._keys(self.key, records, head, last)
            header = Header(
                BATCH,
                index,
                rows,
                first_key,
                last_key,
                self._clock.now_us(),
                self._state.epoch,
                body.body_bytes,
                body.body_sum,
                body.marks | group,
            )
            frames.add(header, self._salt, body.pieces)
            index, head, last = index + rows, last_key, last_key
        if index > INDEX_MAX:
            raise TooLarge(f"the log would pass index {INDEX_MAX}")
        return End(index, head, last)

    def add_marker(
        self, frames: Frames, kind: Kind, index: int, first: int, last: int | None = None, body: bytes = b""
    ) -> None:
        body += padding(len(body))
        header = Header(
            kind,
            index,
            0,
            first,
            first if last is None else last,
            self._clock.now_us(),
            self._state.epoch,
            len(body),
            checksum(body),
        )
        frames.add(header, self._salt, [body], body)

    def say(self, key: int) -> object:
        """An order key as people know it."""
        return key if self.key is None else self.key.decode(key)

    def _keys(self, key: KeyColumn, records: pa.RecordBatch, head: int, last: int | None) -> tuple[int, int]:
        first_key, last_key = key.span(records, strict=self._meta.strict)
        if first_key < head:
            raise KeyOrder(
                f"the order key {key.name!r} goes back from {self.say(head)} to {self.say(first_key)}"
            )
        if self._meta.strict and first_key == last:
            raise KeyOrder(f"the order key {key.name!r} stays at {self.say(last)}: it must increase")
        return first_key, last_key
