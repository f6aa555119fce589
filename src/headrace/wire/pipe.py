"""A pipe: what a publisher sends to a node over a connection of its own, without HTTP around each batch.

A request has a head of 24 bytes, little endian, and a body:

     0  4  size      of the body, in bytes
     4  4  verb      1 publish, 2 move HEAD, 3 tell where the stream stands
     8  8  sequence  of a batch: it is safe to repeat
    16  8  base      the index that the first entry of a batch must get; -1 if any will do

The body of a batch is an Arrow IPC stream, that of HEAD the key as 64 sortable bits, and the third has none.
An answer is 4 bytes of size and that much JSON: what HTTP would answer, or `error`, `message` and `status`.
Answers come in the order of requests. The whole is told in docs/protocols/pipe.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from headrace.wire.errors import ProtocolError

_HEAD = struct.Struct("<IIQq")
_SIZE = struct.Struct("<I")
_BITS = struct.Struct("<Q")
REQUEST_HEAD_BYTES = _HEAD.size
ANY = -1
ANSWER_BYTES_MAX = 64 << 20
"""A batch whose ids were all there is answered with their places."""


class Verb(IntEnum):
    PUBLISH = 1
    HEAD = 2
    WHERE = 3


@dataclass(frozen=True, slots=True)
class PipeRequest:
    verb: Verb
    sequence: int = 0
    base: int = ANY
    body: bytes | memoryview = b""

    @property
    def head(self) -> bytes:
        """What goes before the body."""
        return _HEAD.pack(len(self.body), self.verb, self.sequence, self.base)


def key_body(bits: int) -> bytes:
    return _BITS.pack(bits)


def key_bits(body: bytes | memoryview) -> int:
    if len(body) != _BITS.size:
        raise ProtocolError(f"a key has {_BITS.size} bytes, not {len(body)}")
    return int(_BITS.unpack(body)[0])


class PipeRequests:
    """Requests cut out of what arrives, in whatever pieces. Only what has arrived is held."""

    def __init__(self, body_bytes_max: int) -> None:
        self.wrong: ProtocolError | None = None
        """What came behind the last request and never can be one. Nothing after it is looked at."""
        self._most = body_bytes_max
        self._pieces: list[bytes] = []
        self._held = 0
        self._needed = _HEAD.size

    @property
    def held(self) -> int:
        """Bytes of a request that is not whole yet."""
        return self._held

    def feed(self, data: bytes) -> list[PipeRequest]:
        """Those that are whole now."""
        if self.wrong is not None:
            return []
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return []
        requests: list[PipeRequest] = []
        whole = data if len(self._pieces) == 1 else b"".join(self._pieces)
        at, view = 0, memoryview(whole)
        while len(whole) - at >= _HEAD.size:
            size, verb, sequence, base = _HEAD.unpack_from(whole, at)
            self.wrong = self._wrong(size, verb, base)
            if self.wrong is not None:
                self._pieces, self._held = [], 0
                return requests
            if len(whole) - at < _HEAD.size + size:
                break
            body = view[at + _HEAD.size : at + _HEAD.size + size]
            at += _HEAD.size + size
            requests.append(PipeRequest(Verb(verb), sequence, base, body))
        rest = whole[at:]
        self._pieces, self._held = [rest] if rest else [], len(rest)
        self._needed = _HEAD.size if len(rest) < _HEAD.size else _HEAD.size + size
        return requests

    def _wrong(self, size: int, verb: int, base: int) -> ProtocolError | None:
        if size > self._most:
            return ProtocolError(f"a batch of {size} bytes; {self._most} are allowed: send fewer entries")
        if not Verb.PUBLISH <= verb <= Verb.WHERE or base < ANY:
            return ProtocolError(f"no request has the verb {verb} and the base {base}")
        return None


def answer_bytes(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


class PipeAnswers:
    """Answers cut out of what arrives."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes | None:
        """The next answer, once it is whole."""
        self._held += data
        if len(self._held) < _SIZE.size:
            return None
        size = int(_SIZE.unpack_from(self._held)[0])
        if size > ANSWER_BYTES_MAX:
            raise ProtocolError(f"an answer of {size} bytes")
        end = _SIZE.size + size
        if len(self._held) < end:
            return None
        answer, self._held = self._held[_SIZE.size : end], self._held[end:]
        return answer
