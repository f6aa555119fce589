"""FJ from the client's side: bytes as they arrive, in any pieces, become replies. See fj_requests.py."""

from __future__ import annotations

from typing import Any

from headrace.wire.fj import (
    HAS_CURSOR,
    HAS_PAIRS,
    HAS_TIMEOUT,
    MADE_IN_REPLIES,
    ONE_JOB,
    ONE_JOB_FLAGS,
    REPLY_HEADS,
    REPLY_MAGIC,
    WIDE_KEYS,
    Limits,
    Pair,
    Reply,
)
from headrace.wire.fj_layout import (
    KEY_SIZE,
    USUAL,
    VALUE_SIZE,
    Parser,
    layout_of,
    no_frame,
    too_large,
    wrong_value,
)

_LAYOUT_BITS = WIDE_KEYS | HAS_TIMEOUT | HAS_PAIRS
_LAYOUTS = {
    wide | timeout | pairs: layout_of(
        REPLY_HEADS[bool(timeout), bool(pairs), bool(wide)], bool(timeout), bool(pairs)
    )
    for wide in (0, WIDE_KEYS)
    for timeout in (0, HAS_TIMEOUT)
    for pairs in (0, HAS_PAIRS)
}
_MEANING = 0xFFFF & ~MADE_IN_REPLIES
_LEAST = 17
_PLAIN = REPLY_HEADS[False, False, False]


class ReplyParser(Parser[Reply]):
    """What a client feeds. Long replies are parsed pair by pair, and never from their start again."""

    def __init__(self, limits: Limits = USUAL) -> None:
        super().__init__(limits)
        self._open: _Open | None = None

    def feed(self, data: bytes) -> list[Reply]:
        """All replies that are whole now; see Parser.feed."""
        if not self._rest and self._open is None and self.failed is None:
            # By far the commonest: one reply that says nothing but that all is well, or one job.
            if len(data) == _LEAST:
                magic, number, flags, timestamp, error = _PLAIN.unpack(data)
                if not flags and not error and magic == REPLY_MAGIC:
                    return [tuple.__new__(Reply, (number, 0, timestamp, None, b"", None, None))]
            elif len(data) > ONE_JOB.size and (reply := self._one_job(data)) is not None:
                return [reply]
        return super().feed(data)

    def _one_job(self, data: bytes) -> Reply | None:
        """What arrived, if it is one whole reply with one job."""
        magic, number, flags, timestamp, timeout, count, error, size = ONE_JOB.unpack_from(data)
        stop, end = ONE_JOB.size + size, len(data)
        if flags != ONE_JOB_FLAGS or count != 1 or error or magic != REPLY_MAGIC or stop >= end:
            return None
        length, limits = end - stop - 1, self._limits
        if data[stop] != length or not length or size > limits.key_bytes or length > limits.value_bytes:
            return None
        pair = tuple.__new__(Pair, (data[ONE_JOB.size : stop], data[stop + 1], data[stop + 2 :]))
        return tuple.__new__(Reply, (number, 0, timestamp, timeout, b"", [pair], None))

    def _parse(self, data: bytes, found: list[Reply]) -> int:
        """Append all whole replies to `found`; answer where the rest starts, with its size in `_need`."""
        at, end = 0, len(data)
        while at < end:
            if self._open is None:
                at = self._begin(data, at, end, found)
                if self._open is None:
                    return at
            at = self._continue(self._open, data, at, end)
            if self._open.missing:
                return at
            found.append(self._open.reply())
            self._open = None
        return at

    def _begin(self, data: bytes, at: int, end: int, found: list[Reply]) -> int:
        """Read replies that have no pairs, up to one that has: that one is open then, its error text read."""
        new, append = tuple.__new__, found.append
        while (need := at + _LEAST) <= end:
            flags = data[at + 6] << 8 | data[at + 7]
            unpack, head_bytes, has_timeout, has_count = _LAYOUTS[flags & _LAYOUT_BITS]
            if (need := at + head_bytes) > end:
                break
            count, timeout = 0, None
            if has_count:
                if has_timeout:
                    magic, number, _, timestamp, timeout, count, size = unpack(data, at)
                else:
                    magic, number, _, timestamp, count, size = unpack(data, at)
            elif has_timeout:
                magic, number, _, timestamp, timeout, size = unpack(data, at)
            else:
                magic, number, _, timestamp, size = unpack(data, at)
            if magic != REPLY_MAGIC:
                raise no_frame(magic, REPLY_MAGIC)
            if size > self._limits.key_bytes:
                raise too_large("error", size, self._limits.key_bytes)
            start, need = need, need + size
            if need > end:
                break
            at = need
            fields = (number, flags & _MEANING, timestamp, timeout, data[start:need])
            if flags & (HAS_PAIRS | HAS_CURSOR):
                self._open = _Open(fields, flags, count)
                return at
            append(new(Reply, (*fields, None, None)))
        if at < end and not REPLY_MAGIC.startswith(data[at : at + 4]):
            raise no_frame(data[at : at + 4], REPLY_MAGIC)
        self._need = need - at
        return at

    def _continue(self, reply: _Open, data: bytes, at: int, end: int) -> int:
        """Read pairs and the cursor as far as they are there."""
        wide, width, missing = reply.flags & WIDE_KEYS, reply.flags >> 1 & 3, reply.missing
        key_most, value_most = self._limits.key_bytes, self._limits.value_bytes
        new, append = tuple.__new__, reply.pairs.append
        began = need = at
        while missing:
            if (need := at + 1 + wide) > end:
                break
            size = KEY_SIZE[wide].unpack_from(data, at)[0] if wide else data[at]
            if size > key_most:
                raise too_large("key", size, key_most)
            start, stop = need, need + size
            if width and (missing > 1 or not reply.has_cursor):
                key_stop = stop
                if (need := stop + (1 << width >> 1)) > end:
                    break
                size = data[stop] if width == 1 else VALUE_SIZE[width].unpack_from(data, stop)[0]
                if not 0 < size <= value_most + 1:
                    raise wrong_value(size, value_most)
                if (stop := need + size) <= end:
                    append(new(Pair, (data[start:key_stop], data[need], data[need + 1 : stop])))
            elif stop <= end:
                append(new(Pair, (data[start:stop], None, None)))
            if (need := stop) > end:
                break
            missing -= 1
            at = stop
        reply.missing = missing
        reply.bytes += at - began
        if reply.bytes > self._limits.reply_bytes:
            raise too_large("reply", reply.bytes, self._limits.reply_bytes)
        self._need = need - at
        return at


class _Open:
    """A reply whose pairs are still arriving. Its cursor is read as one more key, which has no value."""

    __slots__ = ("bytes", "fields", "flags", "has_cursor", "missing", "pairs")

    def __init__(self, fields: tuple[Any, ...], flags: int, count: int) -> None:
        self.fields = fields
        self.flags = flags
        self.has_cursor = flags & HAS_CURSOR != 0
        self.missing = count + self.has_cursor
        self.pairs: list[Pair] = []
        self.bytes = 0

    def reply(self) -> Reply:
        cursor = self.pairs.pop().key if self.has_cursor else None
        pairs = self.pairs if self.flags & HAS_PAIRS else None
        return tuple.__new__(Reply, (*self.fields, pairs, cursor))
