"""FJ backwards: bytes as they arrive, in any pieces, become requests and replies.

One call parses every whole frame of what has arrived, from one buffer that is never copied a frame at a time.
Of a frame that is not whole yet, the bytes are kept until as many are there as its sizes ask for, and
sizes beyond the limits end the conversation before anything of them is kept. So a peer can make us hold
one frame of the largest size, and no more.

After a ProtocolError nobody knows where the next frame starts. Frames before the bad one are
still handed out: `feed` returns them and sets `failed`; it raises when there is nothing to return.
"""

from __future__ import annotations

from headrace.wire.fj import (
    HAS_TIMEOUT,
    MADE_IN_REQUESTS,
    QUERY,
    RANGE,
    REQUEST_HEADS,
    REQUEST_MAGIC,
    WIDE_KEYS,
    Request,
)
from headrace.wire.fj_layout import (
    KEY_SIZE,
    VALUE_SIZE,
    Parser,
    layout_of,
    no_frame,
    too_large,
    wrong_value,
)

_LAYOUT_BITS = WIDE_KEYS | HAS_TIMEOUT | QUERY
_LAYOUTS = [
    layout_of(
        REQUEST_HEADS[bits & HAS_TIMEOUT != 0, bits & QUERY == RANGE, bits & WIDE_KEYS != 0],
        bits & HAS_TIMEOUT != 0,
        bits & QUERY == RANGE,
    )
    for bits in range(_LAYOUT_BITS + 1)
]
"""A list, so that finding one is an index and not a decision."""
_MEANING = 0xFFFF & ~MADE_IN_REQUESTS
_LEAST = 19


class RequestParser(Parser[Request]):
    """What a server feeds with what arrives on one connection."""

    def _parse(self, data: bytes, found: list[Request]) -> int:
        """Append all whole requests to `found`; answer where the rest starts, with its size in `_need`."""
        at, end = 0, len(data)
        key_most, value_most = self._limits.key_bytes, self._limits.value_bytes
        layouts, new, append = _LAYOUTS, tuple.__new__, found.append
        while (need := at + _LEAST) <= end:
            flags = data[at + 8] << 8 | data[at + 9]
            unpack, head_bytes, has_timeout, has_count = layouts[flags & _LAYOUT_BITS]
            if (need := at + head_bytes) > end:
                break
            timeout = count = upper = kind = value = None
            if has_count:
                if has_timeout:
                    magic, function, number, _, timestamp, timeout, count, size = unpack(data, at)
                else:
                    magic, function, number, _, timestamp, count, size = unpack(data, at)
            elif has_timeout:
                magic, function, number, _, timestamp, timeout, size = unpack(data, at)
            else:
                magic, function, number, _, timestamp, size = unpack(data, at)
            if magic != REQUEST_MAGIC:
                raise no_frame(magic, REQUEST_MAGIC)
            if size > key_most:
                raise too_large("key", size, key_most)
            start, stop = need, need + size
            key = data[start:stop]
            if has_count:
                if (need := stop + 1 + (flags & 1)) > end:
                    break
                size = KEY_SIZE[flags & 1].unpack_from(data, stop)[0]
                if size > key_most:
                    raise too_large("key", size, key_most)
                stop = need + size
                upper = data[need:stop]
            if width := flags >> 1 & 3:
                if (need := stop + (1 << width >> 1)) > end:
                    break
                size = data[stop] if width == 1 else VALUE_SIZE[width].unpack_from(data, stop)[0]
                if not 0 < size <= value_most + 1:
                    raise wrong_value(size, value_most)
                if (stop := need + size) <= end:
                    kind = data[need]
                    value = data[need + 1 : stop]
            if (need := stop) > end:
                break
            fields = (function, number, flags & _MEANING, timestamp, timeout, count, key, upper, kind, value)
            append(new(Request, fields))
            at = stop
        if at < end and not REQUEST_MAGIC.startswith(data[at : at + 4]):
            raise no_frame(data[at : at + 4], REQUEST_MAGIC)
        self._need = need - at
        return at
