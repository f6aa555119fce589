"""Frames on a line: what a node sends to those who copy a log. docs/protocols/frames.md tells all of it.

Frames travel as they stand in the log, header and body, with the same checksums. Each segment's start frame
comes before its frames: it tells who the log is, and the schema. They come in portions: a note, and the
frames that it announces.

    0  4  magic "hrn1"          8  8  checksum (xxh3_64) of the text
    4  4  bytes of the text    16     JSON, padded with zeros to 64 bytes together with the 16 before it

The note has a checksum of the headers to come, seeded with that of the portion before. So a portion that is
complete is the one that was sent, in its order, after the one before it: nothing was lost, repeated or put
elsewhere on the way, be it a marker that no index would miss. No sockets here: bytes in any pieces become
portions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import xxhash

from headrace.kernel.errors import BadFrame, NewerFormat
from headrace.kernel.limits import BATCH_BYTES_MAX
from headrace.log.frame import (
    HEADER_BYTES,
    MAGIC,
    Header,
    Kind,
    checksum,
    decode_header,
    encode_header,
    padding,
)
from headrace.log.scan import Frame
from headrace.log.start import decode_start

FORMAT = 1
NOTE_MAGIC = b"hrn1"
_NOTE = struct.Struct("<4sIQ")
_NOTE_BYTES_MAX = 1 << 16
_MARKER_BYTES_MAX = 16 << 20
"""Of frames that are no batches. A start frame has the schema, and up to 1024 commits."""


class Note(msgspec.Struct, omit_defaults=True):
    """What a node says beside the frames."""

    format: int = FORMAT
    end: int = 0
    """Where the log ends that can be copied: the index after its last settled entry."""
    base: int = 0
    """The first index that is kept there."""
    state: int = 0
    """Of a log that is folded: no entry before it counts any more, once all before `end` is there."""
    frames: int = 0
    """How many frames follow."""
    fold: int = 0
    """Checksum of their headers, seeded with that of the portion before."""
    error: str = ""
    message: str = ""
    """Why no more will come: the code of an error, and its sentence."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame that came. Its header is right; the body of a batch is for `landing` to check."""

    header: Header
    raw: memoryview
    """Header and body."""

    @property
    def body(self) -> memoryview:
        return self.raw[HEADER_BYTES:]


@dataclass(frozen=True, slots=True)
class Portion:
    note: Note
    frames: list[Sent] = field(default_factory=list)


def encode_note(note: Note) -> bytes:
    text = msgspec.json.encode(note)
    head = _NOTE.pack(NOTE_MAGIC, len(text), xxhash.xxh3_64_intdigest(text))
    return head + text + padding(len(head) + len(text))


class FrameEncoder:
    """Makes the portions of one connection."""

    def __init__(self, salt: int) -> None:
        self._salt = salt
        self._fold = 0

    def portion(self, note: Note, frames: Sequence[Frame]) -> list[memoryview]:
        """The note, which is told what it announces, and the frames; bodies are not copied."""
        headers = [encode_header(frame.header, self._salt) for frame in frames]
        self._fold = _folded(headers, self._fold)
        note = msgspec.structs.replace(note, frames=len(frames), fold=self._fold)
        pieces = [memoryview(encode_note(note))]
        for header, frame in zip(headers, frames, strict=True):
            pieces += [memoryview(header), memoryview(frame.body)]
        return pieces


class FrameParser:
    """Bytes in any pieces become portions. After BadFrame it takes nothing more."""

    def __init__(self) -> None:
        self._salt: int | None = None
        self._fold = 0
        self._portion: Portion | None = None
        self._header: Header | None = None
        """Of the frame that comes next, or is coming."""
        self._parts: list[bytes] = []
        self._have = 0
        self._need = HEADER_BYTES

    def feed(self, data: bytes) -> Iterator[Portion]:
        """All that is complete now."""
        self._parts.append(data)
        self._have += len(data)
        if self._have < self._need:
            return
        whole = memoryview(data if len(self._parts) == 1 else b"".join(self._parts))
        at = 0
        while (size := self._size_at(whole, at)) <= len(whole) - at:
            portion = self._taken(whole[at : at + size])
            at += size
            if len(portion.frames) == portion.note.frames:
                self._portion = None
                yield self._checked(portion)
        self._need = size
        rest = bytes(whole[at:])
        self._parts, self._have = [rest] if rest else [], len(rest)

    def _taken(self, raw: memoryview) -> Portion:
        """The portion to which the next note or frame belongs, with it."""
        if raw[:4] == NOTE_MAGIC and self._portion is None:
            self._portion = Portion(_note(raw))
        elif raw[:4] != NOTE_MAGIC and self._portion is not None:
            self._portion.frames.append(self._frame(raw))
        else:
            raise BadFrame("a note came instead of a frame, or a frame that was not announced")
        return self._portion

    def _checked(self, portion: Portion) -> Portion:
        self._fold = _folded([bytes(sent.raw[:HEADER_BYTES]) for sent in portion.frames], self._fold)
        if self._fold != portion.note.fold:
            raise BadFrame("frames were lost, repeated or put elsewhere on the way: the line is asked again")
        return portion

    def _size_at(self, whole: memoryview, at: int) -> int:
        """The bytes of the next item, as far as is known."""
        raw = bytes(whole[at : at + HEADER_BYTES])
        if len(raw) < HEADER_BYTES:
            return HEADER_BYTES
        if raw[:4] == NOTE_MAGIC:
            size: int = _NOTE.size + _NOTE.unpack_from(raw)[1]
            if size > _NOTE_BYTES_MAX:
                raise BadFrame(f"a note of {size} bytes: at most {_NOTE_BYTES_MAX} are taken")
            return size + -size % HEADER_BYTES
        header = self._header = self._decoded(raw)
        most = BATCH_BYTES_MAX if header.kind == Kind.BATCH else _MARKER_BYTES_MAX
        if header.body_bytes > most:
            raise BadFrame(f"a frame of {header.body_bytes} bytes: at most {most} are taken")
        return header.frame_bytes

    def _decoded(self, raw: bytes) -> Header:
        header = decode_header(raw, self._salt or 0)
        if header is None or (self._salt is None and header.kind != Kind.START):
            what = "a damaged header" if raw[:4] == MAGIC else "no frame"
            raise BadFrame(f"{what} where the next frame must be: the line is asked again")
        return header

    def _frame(self, raw: memoryview) -> Sent:
        header = self._header
        assert header is not None
        sent = Sent(header, raw)
        if header.kind != Kind.BATCH and checksum(sent.body) != header.body_sum:
            raise BadFrame(f"the frame for index {header.base_index} came damaged: the line is asked again")
        if header.kind == Kind.START:
            self._salt = decode_start(header, bytes(sent.body), "the start frame").meta.salt
        return sent


def _folded(headers: Iterable[bytes], seed: int) -> int:
    return xxhash.xxh3_64_intdigest(b"".join(headers), seed)


def _note(raw: memoryview) -> Note:
    _, size, expected = _NOTE.unpack_from(raw)
    text = raw[_NOTE.size : _NOTE.size + size]
    try:
        if xxhash.xxh3_64_intdigest(text) != expected:
            raise BadFrame("a note came damaged: the line is asked again")
        note = msgspec.json.decode(text, type=Note)
    except msgspec.MsgspecError as error:
        raise BadFrame(f"a note that cannot be read ({error})") from error
    if note.format > FORMAT:
        raise NewerFormat(f"frames of format {note.format}; this headrace reads up to {FORMAT}: upgrade it")
    return note
