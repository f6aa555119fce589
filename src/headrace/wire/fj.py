"""FJ, the protocol of journals: what its messages say, and how they become bytes. docs/protocols/fj.md.

    request   'FJ'  version  function  identifier  flags  timestamp  [timeout]  [count]
              key size  key  [upper size  upper]  [value size  type  value]
    reply     'JR'  version  identifier  flags  timestamp  [timeout]  [count]
              error size  error  pairs of (key size  key  [value size  type  value])  [cursor size  cursor]

Numbers are big endian; times are microseconds since 1970. There is no length of a frame anywhere: the
flags alone tell which fields are there, the same way for every function, so that a server can answer a
function it does not know and go on.

Whether a field is there and how wide a size is, the fields themselves say: those bits of the flag word
are made while encoding and taken away while parsing. `flags` of a Request and a Reply has only the
bits that mean something besides.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from headrace.kernel.errors import TooLarge
from headrace.wire.errors import ProtocolError

VERSION = 1
REQUEST_MAGIC = b"FJ\0\1"
REPLY_MAGIC = b"JR\0\1"
"""Magic and version together: the first four bytes of every frame."""

SIZE_MAX = 0xFFFF
"""Of a key, an error text and a cursor; and the number of pairs in a reply."""
VALUE_BYTES_MAX = 16 << 20


class Function(IntEnum):
    NOP = 0
    QUIT = 1
    SET = 2
    GET = 3
    DELETE = 4
    ADD = 5
    NOT = 6
    TRUNCATE = 7
    LOCK = 8
    UNLOCK = 9
    RENAME = 10
    NEXT = 11
    LINK = 12


class Query(IntEnum):
    KEY = 0
    RANGE = 1
    REGEX = 2
    CURSOR = 3


# --- bits of the flag word

WIDE_KEYS = 1 << 0
VALUE_WIDTH = 0b11 << 1
HAS_TIMEOUT = 1 << 3
UPDATE_TIMEOUT = 1 << 4
OVERWRITE = 1 << 5
WORKED_ON = 1 << 6
QUERY = 0b11 << 7
DATA = 1 << 10
LISTEN = 1 << 11
PERSIST = 1 << 9 | 1 << 12
"""The seed has the bit twice. Both are sent; either is enough."""
HAS_PAIRS = 1 << 13
HAS_CURSOR = 1 << 14
BUSY = 1 << 15
"""In a reply: the value is locked or worked on."""

RANGE = Query.RANGE << 7
REGEX = Query.REGEX << 7
CURSOR = Query.CURSOR << 7

MADE_IN_REQUESTS = WIDE_KEYS | VALUE_WIDTH | HAS_TIMEOUT
MADE_IN_REPLIES = MADE_IN_REQUESTS | HAS_PAIRS | HAS_CURSOR


class Limits(NamedTuple):
    """What a parser takes from its peer, and so the most it ever buffers."""

    key_bytes: int = SIZE_MAX
    value_bytes: int = VALUE_BYTES_MAX
    reply_bytes: int = 1 << 30
    """All pairs of one reply together; only those who read replies need it."""


class Request(NamedTuple):
    function: int
    """Any 16 bits: unknown functions are parsed as well."""
    identifier: int
    flags: int = 0
    timestamp: int = 0
    timeout: int | None = None
    count: int | None = None  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    """There if and only if the query is a range, as is `upper`."""
    key: bytes = b""
    upper: bytes | None = None
    type: int | None = None
    """None: the request has no value."""
    value: bytes | None = None

    @property
    def query(self) -> Query:
        return Query(self.flags >> 7 & 3)


class Pair(NamedTuple):
    key: bytes
    type: int | None = None
    value: bytes | None = None
    """Empty if only the type was answered."""


class Reply(NamedTuple):
    identifier: int
    """That of the request; 0 is a push, which no request asked for."""
    flags: int = 0
    timestamp: int = 0
    timeout: int | None = None
    error: bytes = b""
    pairs: list[Pair] | None = None
    cursor: bytes | None = None


# --- layouts: one struct for all that comes before the first variable field

_REQUEST = ">4sHHHQ"
_REPLY = ">4sHHQ"
_SIZES: tuple[Struct, ...] = (Struct(">BB"), Struct(">HB"), Struct(">IB"))
"""The size of a value and its type, by width - 1. The size counts the byte of the type."""


def _head(fixed: str, timeout: bool, count: bool, wide: bool) -> Struct:
    return Struct(fixed + "Q" * timeout + "H" * count + ("H" if wide else "B"))


REQUEST_HEADS = {
    (timeout, count, wide): _head(_REQUEST, timeout, count, wide)
    for timeout in (False, True)
    for count in (False, True)
    for wide in (False, True)
}
REPLY_HEADS = {
    (timeout, count, wide): _head(_REPLY, timeout, count, wide) for timeout, count, wide in REQUEST_HEADS
}


ONE_JOB = Struct(_REPLY + "QHBB")
"""How the commonest reply to NEXT begins: up to the size of the one key. Key and value are short."""
ONE_JOB_FLAGS = HAS_TIMEOUT | HAS_PAIRS | 1 << 1


def encode_request(request: Request, identifier: int | None = None) -> bytes:
    """The bytes of a request; with `identifier`, instead of its own."""
    function, own, flags, timestamp, timeout, count, key, upper, kind, value = request
    if identifier is None:
        identifier = own
    flags &= ~MADE_IN_REQUESTS
    if flags & QUERY == RANGE:
        count, upper = count or 0, upper or b""
    elif count is not None or upper is not None:
        raise ProtocolError("a count and a second key are part of requests by range only")
    tail = b""
    if kind is not None:
        width, tail = _value(kind, value or b"")
        flags |= width << 1
    if len(key) > 0xFF or (upper is not None and len(upper) > 0xFF):
        flags |= WIDE_KEYS
        _check_size("key", max(len(key), len(upper or b"")))
    wide = flags & WIDE_KEYS != 0
    if timeout is not None:
        flags |= HAS_TIMEOUT
    pack = _PACK_REQUEST[timeout is not None, upper is not None, wide]
    if upper is not None:
        size = len(upper).to_bytes(1 + wide, "big")
        rest = b"".join((key, size, upper, tail))
        if timeout is None:
            return pack(REQUEST_MAGIC, function, identifier, flags, timestamp, count, len(key)) + rest
        return pack(REQUEST_MAGIC, function, identifier, flags, timestamp, timeout, count, len(key)) + rest
    if timeout is None:
        return pack(REQUEST_MAGIC, function, identifier, flags, timestamp, len(key)) + key + tail
    return pack(REQUEST_MAGIC, function, identifier, flags, timestamp, timeout, len(key)) + key + tail


_PACK_REQUEST = {shape: head.pack for shape, head in REQUEST_HEADS.items()}


def encode_reply(reply: Reply) -> bytes:
    identifier, flags, timestamp, timeout, error, pairs, cursor = reply
    flags &= ~MADE_IN_REPLIES
    if pairs is None and timeout is None and cursor is None and len(error) <= 0xFF:
        return _PLAIN_REPLY.pack(REPLY_MAGIC, identifier, flags, timestamp, len(error)) + error
    if pairs is not None and len(pairs) == 1 and timeout is not None and cursor is None and not error:
        key, kind, value = pairs[0]
        if kind is not None and value is not None and len(key) <= 0xFF and len(value) < 0xFF:  # a job
            flags |= ONE_JOB_FLAGS
            begin = ONE_JOB.pack(REPLY_MAGIC, identifier, flags, timestamp, timeout, 1, 0, len(key))
            return b"".join((begin, key, _SIZES[0].pack(len(value) + 1, kind), value))
    longest = max(len(error), len(cursor or b""))
    width = 0
    if pairs:
        longest = max(longest, max([len(pair[0]) for pair in pairs]))
        width = _width_of(pairs)
        flags |= width << 1
    if longest > 0xFF:
        flags |= WIDE_KEYS
        _check_size("key, error or cursor", longest)
    fields: list[bytes | int] = [REPLY_MAGIC, identifier, flags, timestamp]
    if timeout is not None:
        flags |= HAS_TIMEOUT
        fields.append(timeout)
    if pairs is not None:
        flags |= HAS_PAIRS
        if len(pairs) > SIZE_MAX:
            raise TooLarge(f"a reply has at most {SIZE_MAX} pairs, not {len(pairs)}")
        fields.append(len(pairs))
    if cursor is not None:
        flags |= HAS_CURSOR
    fields[2] = flags
    head = REPLY_HEADS[timeout is not None, pairs is not None, longest > 0xFF]
    parts = [head.pack(*fields, len(error)), error]
    key_size = 2 if longest > 0xFF else 1
    if pairs:
        _add_pairs(parts, pairs, key_size, width)
    if cursor is not None:
        parts += (len(cursor).to_bytes(key_size, "big"), cursor)
    return b"".join(parts)


def _add_pairs(parts: list[bytes], pairs: list[Pair], key_size: int, width: int) -> None:
    pack = _SIZES[width - 1].pack
    for key, kind, value in pairs:
        parts += (len(key).to_bytes(key_size, "big"), key)
        if width:
            if kind is None:
                raise ProtocolError("either all pairs of a reply have a type, or none has")
            data = value or b""
            parts += (pack(len(data) + 1, kind), data)


_PLAIN_REPLY = REPLY_HEADS[False, False, False]


def _value(kind: int, value: bytes) -> tuple[int, bytes]:
    size = len(value) + 1
    width = _width(size)
    return width, _SIZES[width - 1].pack(size, kind) + value


def _width(size: int) -> int:
    if size <= 0xFF:
        return 1
    if size <= 0xFFFF:
        return 2
    if size <= 0xFFFFFFFF:
        return 3
    raise TooLarge(f"a value has less than 4 GiB, not {size - 1} bytes")


def _width_of(pairs: list[Pair]) -> int:
    """One width for all the values of a reply; 0 if no pair has a type."""
    sizes = [len(value or b"") + 1 for _, kind, value in pairs if kind is not None]
    return _width(max(sizes)) if sizes else 0


def _check_size(what: str, size: int) -> None:
    if size > SIZE_MAX:
        raise TooLarge(f"a {what} has at most {SIZE_MAX} bytes, not {size}")
