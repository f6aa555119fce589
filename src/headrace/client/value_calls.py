"""Values as FJ requests: set, get, and what is done to them on the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from headrace.client.answers import NO_KEY, carried_out, check, named, only_pair, pairs_of, raw, value_of
from headrace.client.calls import Call, Words, persisted
from headrace.journal.errors import BadRequest
from headrace.journal.job import Data
from headrace.journal.value import Value, decode, encode
from headrace.kernel.durations import Duration, microseconds
from headrace.wire.fj import (
    CURSOR,
    DATA,
    LISTEN,
    OVERWRITE,
    PERSIST,
    RANGE,
    REGEX,
    UPDATE_TIMEOUT,
    WORKED_ON,
    Function,
    Reply,
    Request,
)

Key = str | bytes
PAGE = 1000
"""Values asked for at a time: many enough to cost little each, few enough to fit anywhere."""

LAST = b"\xff" * 255
"""Behind every key that is a text."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some values of a longer read, and how to go on."""

    values: list[Value]
    following: Call[Page] | None


class ValueWords(Words):
    def set(
        self,
        key: Key,
        value: Data,
        *,
        ttl: Duration | None = None,
        persist: bool = True,
        overwrite: bool = True,
        timestamp_us: int | None = None,
        listen: bool = False,
    ) -> Call[None]:
        """Keep the value under the key. Of two writers the one with the larger timestamp wins."""
        flags = persisted(persist) | (OVERWRITE if overwrite else 0) | (LISTEN if listen else 0)
        now = self.stamp(timestamp_us)
        kind, data = encode(value)
        expires = None if ttl is None else now + microseconds(ttl)
        return self._plain(
            Request(Function.SET, 0, flags, now, expires, key=named(key), type=kind, value=data)
        )

    def get(
        self,
        key: Key,
        *,
        lease: Duration | None = None,
        touch: bool | Duration = False,
        skip_worked_on: bool = False,
    ) -> Call[Value | None]:
        """The value, or None. `lease` marks it as worked on, `touch` moves its expiry."""
        flags = DATA | (WORKED_ON if skip_worked_on else 0)
        timeout = self.moment(lease)
        if touch is not False:
            if lease is not None:
                raise BadRequest("a value is either leased or touched by one get, not both")
            flags |= UPDATE_TIMEOUT
            timeout = None if touch is True else self.moment(touch)
        return self._one(key, flags, timeout)

    def probe(self, key: Key) -> Call[Value | None]:
        """What is known of the value, without its data; None if there is none."""
        return self._one(key, 0, None)

    def listen(self, key: Key) -> Call[Value | None]:
        """Be told of every change of the key from now on, whether it has a value yet or not."""
        return self._one(key, LISTEN, None)

    def range(self, low: Key = "", high: Key | None = None, count: int = 0) -> Call[Page]:
        """The values from one key to another, both included; a count of 0 is all of them."""
        page = min(count, PAGE) or PAGE
        request = Request(
            Function.GET,
            0,
            DATA | RANGE,
            self.now_us(),
            None,
            page,
            raw(low),
            LAST if high is None else raw(high),
        )
        return Call(request, partial(self._page, count or None))

    def match(self, regex: Key, count: int = 0) -> Call[Page]:
        """The values whose key matches the regular expression (RE2) anywhere."""
        request = Request(Function.GET, 0, DATA | REGEX, self.now_us(), key=raw(regex))
        return Call(request, partial(self._page, count or None))

    def delete(self, key: Key, *, now: bool = False, timestamp_us: int | None = None) -> Call[None]:
        """Delete the value; NoSuchKey if there is none. With `now` nothing of it is remembered."""
        flags = PERSIST | (OVERWRITE if now else 0)
        at = self.stamp(timestamp_us)
        return self._plain(Request(Function.DELETE, 0, flags, at, key=raw(key)))

    def add(self, key: Key, number: float) -> Call[int | float]:
        """Add to a number on the server; the new value."""
        kind, data = encode(number)
        name = raw(key)
        request = Request(Function.ADD, 0, PERSIST, self.now_us(), key=name, type=kind, value=data)
        return Call(request, partial(_number, name))

    def flip(self, key: Key) -> Call[bool]:
        """NOT: true becomes false, and false true; the new value."""
        name = raw(key)
        request = Request(Function.NOT, 0, PERSIST, self.now_us(), key=name)
        return Call(request, lambda reply: bool(_data(name, reply)))

    def resize(self, key: Key, size: int) -> Call[None]:
        """TRUNCATE: cut the value to `size` bytes, or fill it up with zeros."""
        kind, data = encode(size)
        return self._plain(
            Request(Function.TRUNCATE, 0, PERSIST, self.now_us(), key=raw(key), type=kind, value=data)
        )

    def lock(self, key: Key, until: Duration | None = None) -> Call[None]:
        """Nobody else changes the value until `unlock`, or that time (60 s) or the connection ends."""
        return self._plain(Request(Function.LOCK, 0, 0, self.now_us(), self.moment(until), key=raw(key)))

    def unlock(self, key: Key) -> Call[None]:
        return self._plain(Request(Function.UNLOCK, 0, 0, self.now_us(), key=raw(key)))

    def rename(self, old: Key, new: Key) -> Call[None]:
        """The value is under the new key, and no more under the old one."""
        return self._two(Function.RENAME, old, new)

    def link(self, key: Key, other: Key) -> Call[None]:
        """The same value under one more key."""
        return self._two(Function.LINK, key, other)

    def _plain(self, request: Request) -> Call[None]:
        return Call(request, partial(carried_out, request.key))

    def _two(self, function: Function, key: Key, other: Key) -> Call[None]:
        flags, now = PERSIST | RANGE, self.now_us()
        return self._plain(Request(function, 0, flags, now, None, 0, raw(key), raw(other)))

    def _one(self, key: Key, flags: int, timeout: int | None) -> Call[Value | None]:
        name = raw(key)
        request = Request(Function.GET, 0, flags, self.now_us(), timeout, key=name)
        return Call(request, partial(_value, name))

    def _page(self, count: int | None, reply: Reply) -> Page:
        check(reply, b"")
        values = [value_of(pair) for pair in pairs_of(reply)][:count]
        left = None if count is None else count - len(values)
        if reply.cursor is None or left == 0:
            return Page(values, None)
        request = Request(Function.GET, 0, DATA | CURSOR, self.now_us(), key=reply.cursor)
        return Page(values, Call(request, partial(self._page, left)))


def _value(key: bytes, reply: Reply) -> Value | None:
    if reply.error == NO_KEY:
        return None
    pairs = pairs_of(check(reply, key))
    return value_of(pairs[0], reply=reply) if pairs else None


def _data(key: bytes, reply: Reply) -> Data:
    pair = only_pair(check(reply, key), key)
    return decode(pair.type or 0, pair.value or b"")


def _number(key: bytes, reply: Reply) -> int | float:
    number = _data(key, reply)
    assert isinstance(number, int | float)
    return number
