"""The verbs of a journal that are about keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.journal import checks
from headrace.journal.checks import key_bytes
from headrace.journal.checks import text as key_text
from headrace.journal.engine import Engine
from headrace.journal.job import Data
from headrace.journal.rows import ValueRow
from headrace.journal.scan import PAGE, Cursor, check_pattern, decode_cursor, read_page
from headrace.journal.value import Type, Value, decode, encode
from headrace.journal.value_operations import NewValue, is_locked
from headrace.kernel.durations import Duration, microseconds

LOCK_US = 60_000_000
"""How long a lock holds when nobody says."""


class ValueVerbs:
    _engine: Engine

    def set(
        self,
        key: str,
        value: Data,
        *,
        ttl: Duration | None = None,
        persist: bool = True,
        overwrite: bool = True,
        timestamp_us: int | None = None,
        owner: object = None,
    ) -> bool:
        """Keep a value under a key; on the disk when this returns, if it is to `persist`.

        False if a later write of that key is known already: of several writers the one with the largest
        `timestamp_us` wins, whoever comes last. KeyTaken if there is a value and it is not to `overwrite`.
        """
        raw, (kind, data) = key_bytes(key), encode(value)
        checks.size(data, self._engine.value_bytes)
        if timestamp_us is not None:
            checks.time_us(timestamp_us)
        life = None if ttl is None else microseconds(ttl)

        def operation(now: int) -> bool:
            expires = None if life is None else now + life
            new = NewValue(raw, kind, data, timestamp_us, expires, life, persist, overwrite)
            return self._engine.values.set(now, new, owner)

        return self._engine.do(operation, len(raw) + len(data))

    def get(self, key: str, *, lease: Duration | None = None, touch: bool = False) -> Value | None:
        """The value under a key, or None.

        `lease` marks it as worked on for that long; `touch` moves its expiry on by its time to live.
        """
        raw = key_bytes(key)
        length = None if lease is None else microseconds(lease)

        def operation(now: int) -> Value | None:
            found = self._engine.values.get(now, raw)
            if found is None:
                return None
            if length is not None:
                self._engine.values.work_on(now, raw, now + length)
            if touch:
                self._engine.values.touch(now, raw)
            return value_of(raw, found[0], found[1], now)

        return self._engine.do(operation, len(raw) if touch or length is not None else 0)

    def probe(self, key: str) -> Value | None:
        """What is known of a value, without the value."""
        raw = key_bytes(key)

        def operation(now: int) -> Value | None:
            row = self._engine.values.find(now, raw)
            return None if row is None else value_of(raw, row, None, now)

        return self._engine.do(operation, 0)

    def range(self, low: str = "", high: str | None = None, count: int | None = None) -> Iterator[Value]:
        """The values with keys from `low` to `high`, both included, in the order of the keys."""
        upper = None if high is None else key_bytes(high)
        return self._scan(Cursor(None, key_bytes(low) if low != "" else b"", upper, None), count)

    def match(self, pattern: str, count: int | None = None) -> Iterator[Value]:
        """The values whose keys match a regular expression (RE2), anywhere unless it is anchored."""
        raw = checks.pattern_bytes(pattern)
        check_pattern(raw)
        return self._scan(Cursor(None, b"", None, raw), count)

    def delete(
        self, key: str, *, now: bool = False, timestamp_us: int | None = None, owner: object = None
    ) -> bool:
        """Delete a value with all its keys. NoSuchKey if there is none; False if it was written later.

        The key remembers its deletion for a while, so that older writes that come late change nothing; with
        `now` it is gone without a trace.
        """
        raw = key_bytes(key)
        if timestamp_us is not None:
            checks.time_us(timestamp_us)

        def operation(at: int) -> bool:
            return self._engine.values.delete(at, raw, timestamp_us, erase=now, owner=owner)

        return self._engine.do(operation, len(raw))

    def add(self, key: str, number: int | float, *, owner: object = None) -> int | float:
        """Add to a number, all at once; what it is then."""
        raw, delta = key_bytes(key), encode(number)
        kind, data = self._engine.do(lambda now: self._engine.values.add(now, raw, delta, owner), len(raw))
        total = decode(kind, data)
        assert isinstance(total, int | float)
        return total

    def flip(self, key: str, *, owner: object = None) -> bool:
        """Turn a boolean over; what it is then."""
        raw = key_bytes(key)
        _kind, data = self._engine.do(lambda now: self._engine.values.flip(now, raw, owner), len(raw))
        return data != b"\0"

    def resize(self, key: str, size: int, *, owner: object = None) -> None:
        """Cut a value to `size` bytes, or fill it up with zero bytes."""
        raw = key_bytes(key)
        checks.new_size(size, self._engine.value_bytes)
        self._engine.do(
            lambda now: self._engine.values.resize(now, raw, size, owner), self._room_for(raw, size)
        )

    def lock(self, key: str, owner: object, until: Duration = 60.0) -> None:
        """Nobody but `owner` changes the value for that long. Locked if somebody else has it."""
        raw, length = key_bytes(key), microseconds(until)
        self._engine.do(lambda now: self._engine.values.lock(now, raw, owner, now + length), 0)

    def unlock(self, key: str, owner: object) -> None:
        raw = key_bytes(key)
        self._engine.do(lambda now: self._engine.values.unlock(now, raw, owner), 0)

    def rename(self, key: str, other: str, *, owner: object = None) -> None:
        """The value is under `other` from now on, instead of `key`."""
        old, new = key_bytes(key), key_bytes(other)
        room = self._room_for(old, None) + len(new)
        self._engine.do(lambda now: self._engine.values.rename(now, old, new, owner), room)

    def link(self, key: str, other: str, *, owner: object = None) -> None:
        """One more key for the value under `key`."""
        old, new = key_bytes(key), key_bytes(other)
        self._engine.do(lambda now: self._engine.values.link(now, old, new, owner), len(old) + len(new))

    def listen(self, key: str, told: Callable[[str, Type], None]) -> Callable[[], None]:
        """Call `told` with the key and its new type whenever the value changes; void when it is gone.

        It may be called in any thread that changes something, and must not wait. The result ends it.
        """
        raw = key_bytes(key)

        def tell(changed: bytes, kind: int) -> None:
            told(key_text(changed), Type(kind))

        self._engine.listeners.add(raw, tell)
        return lambda: self._engine.listeners.remove(raw, tell)

    def page(
        self, cursor: Cursor, count: int = PAGE, budget_bytes: int = 1 << 62
    ) -> tuple[list[Value], Cursor | None]:
        """For servers: up to `count` values, about so many bytes of them; and where the next begin."""
        return self._engine.do(lambda now: self._page(now, cursor, count, budget_bytes), 0)

    # --- inside

    def _scan(self, cursor: Cursor, count: int | None) -> Iterator[Value]:
        return self._pages(cursor, None if count is None else checks.count(count, "how many"))

    def _pages(self, cursor: Cursor, left: int | None) -> Iterator[Value]:
        following: Cursor | None = cursor
        while following is not None and (left is None or left > 0):
            values, following = self.page(following, PAGE if left is None else min(left, PAGE))
            yield from values
            left = None if left is None else left - len(values)

    def _page(
        self, now: int, cursor: Cursor, count: int, budget_bytes: int
    ) -> tuple[list[Value], Cursor | None]:
        self._engine.values.tick(now)
        page = read_page(self._engine.state.values, cursor, count, budget_bytes)
        values = [value_of(key, row, self._engine.read(row), now) for key, row in page.rows]
        return values, None if page.cursor is None else decode_cursor(page.cursor)

    def _room_for(self, key: bytes, size: int | None) -> int:
        """What saying the value again takes, with so many bytes or as it is.

        If it is not there, no more than its key: what will be refused takes nothing from the disk.
        """
        if key not in self._engine.state.values.by_key:
            return len(key)
        return len(key) + (self._engine.values.size_of(key) if size is None else size)


def value_of(key: bytes, row: ValueRow, value: bytes | None, now: int) -> Value:
    """What the API tells of a row; `value` None: without the value."""
    return Value(
        key=key_text(key),
        value=None if value is None else decode(row.type, value),
        type=Type(row.type) if row.type in set(Type) else Type.BUFFER,
        expires_us=row.expires,
        ttl_us=row.ttl,
        persist=not row.volatile,
        created_us=row.created,
        modified_us=row.modified,
        accessed_us=row.accessed,
        timestamp_us=row.stamp,
        locked=is_locked(row, now) or row.lease > now,
        keys=tuple(key_text(each) for each in row.keys) if len(row.keys) > 1 else (),
    )
