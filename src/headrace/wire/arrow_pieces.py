"""An Arrow IPC stream that arrives in pieces: batches with their notes, as soon as they are whole.

    pieces = ArrowPieces()
    for chunk in response: for batch, notes in pieces.feed(chunk): ...

Arrow's own reader wants a source to wait on, and so a thread. Here nothing waits: messages are cut out where
their lengths say, and those that are whole are read in one go, behind the schema that began the stream.
Every byte is copied once: a message that comes in many pieces gets a buffer of its full size with the first
of them, since growing one again and again costs more than all the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from headrace.wire.arrow_size import END, message_bytes
from headrace.wire.errors import ProtocolError

Notes = dict[bytes, bytes]
_DIRECT_BYTES = 1 << 14
"""So much is worth being received where it belongs."""


class ArrowPieces:
    def __init__(self) -> None:
        self.schema: pa.Schema | None = None
        self.ended = False
        """Whether the stream said that it is over."""
        self._waiting = b""
        """The beginning of a message whose length is not known yet."""
        self._partial: _Partial | None = None
        self._preamble = b""
        """The schema, without which no batch can be read."""

    def feed(self, chunk: bytes) -> list[tuple[pa.RecordBatch, Notes]]:
        """The batches that are whole now; ProtocolError if this is no Arrow."""
        try:
            if self._is_lone(chunk):
                return self._lone(chunk)
            return list(self._fed(memoryview(self._waiting + chunk if self._waiting else chunk)))
        except (pa.ArrowException, OSError, struct.error, ValueError) as error:
            raise ProtocolError(f"what came is no Arrow IPC stream: {error}") from error

    @property
    def room(self) -> memoryview | None:
        """Where the rest of a message belongs that has come in part; None if little is missing, or all."""
        partial = self._partial
        return None if partial is None or partial.missing < _DIRECT_BYTES else partial.room

    def filled(self, size: int) -> list[tuple[pa.RecordBatch, Notes]]:
        """So many bytes were put into `room`: the batches that are whole now."""
        assert self._partial is not None
        self._partial.missing -= size
        return self.feed(b"") if not self._partial.missing else []

    def _is_lone(self, chunk: bytes) -> bool:
        """Whether it is just one message, as a follower that has caught up mostly gets."""
        if self.schema is None or self._partial is not None or self._waiting:
            return False
        return message_bytes(chunk, 0) == len(chunk) != len(END)

    def _lone(self, message: bytes) -> list[tuple[pa.RecordBatch, Notes]]:
        reader = pa.ipc.open_stream(b"".join((self._preamble, message)))
        try:
            batch, notes = reader.read_next_batch_with_custom_metadata()
        except StopIteration:  # it was none
            return []
        return [(batch, dict(notes or {}))]

    def _fed(self, data: memoryview) -> Iterator[tuple[pa.RecordBatch, Notes]]:
        self._waiting = b""
        if self._partial is not None:
            data = self._partial.fill(data)
            if self._partial.missing:
                return
            message, self._partial = self._partial, None
            yield from _batches(message.buffer)
        if self.schema is None:
            data = self._take_schema(data)
        whole, data = self._cut(data)
        if whole:
            yield from _batches(pa.py_buffer(b"".join((self._preamble, whole, b"" if self.ended else END))))
        if not data:
            return
        size = None if self.schema is None else message_bytes(data, 0)
        if size is None:
            self._waiting = bytes(data)
        else:
            self._partial = _Partial(self._preamble, size)
            self._partial.fill(data)

    def _take_schema(self, data: memoryview) -> memoryview:
        size = message_bytes(data, 0)
        if size is None or len(data) < size:
            return data
        self._preamble = bytes(data[:size])
        self.schema = pa.ipc.open_stream(self._preamble + END).schema
        return data[size:]

    def _cut(self, data: memoryview) -> tuple[memoryview, memoryview]:
        """All messages that have come in full, and the rest."""
        at = 0
        if self.schema is not None:
            while (size := message_bytes(data, at)) is not None and at + size <= len(data):
                self.ended = self.ended or size == len(END)
                at += size
        return data[:at], data[at:]


class _Partial:
    """A message of which a part has come, between the schema and the end that its reader wants."""

    def __init__(self, preamble: bytes, size: int) -> None:
        self.buffer = pa.allocate_buffer(len(preamble) + size + len(END))
        self.missing = size
        self._view = memoryview(self.buffer).cast("B")
        self._view[: len(preamble)] = preamble
        self._view[-len(END) :] = END

    @property
    def room(self) -> memoryview:
        """Where the rest of it goes."""
        end = len(self._view) - len(END)
        return self._view[end - self.missing : end]

    def fill(self, data: memoryview) -> memoryview:
        """Take what belongs to it; the rest."""
        taken = data[: self.missing]
        self.room[: len(taken)] = taken
        self.missing -= len(taken)
        return data[len(taken) :]


def _batches(stream: pa.Buffer) -> Iterator[tuple[pa.RecordBatch, Notes]]:
    reader = pa.ipc.open_stream(stream)
    while True:
        try:
            batch, notes = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        yield batch, dict(notes or {})
