"""The verbs of a journal on a node that are about keys and values, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from headrace.client.aio_jobs import span
from headrace.client.journal_line import JournalLine
from headrace.client.value_listener import Told, ValueListener
from headrace.journal import checks
from headrace.journal import requests as ask
from headrace.journal.job import Data
from headrace.journal.scan import check_pattern
from headrace.journal.spelling import Spelled, SpelledValue, read, spell, spell_text
from headrace.journal.value import Value
from headrace.kernel.durations import Duration, microseconds


class _Known(msgspec.Struct):
    value: SpelledValue | None


class _Number(msgspec.Struct):
    value: Spelled


class _Page(msgspec.Struct):
    values: list[SpelledValue]
    cursor: str | None


class AsyncValueVerbs:
    _line: JournalLine
    _listeners: set[ValueListener]

    async def set(
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
        """Keep a value under a key; False if a later write of that key is known already."""
        mine = self._line.owner(owner)
        wanted = ask.Set(_key(key), spell(value), span(ttl), persist, overwrite, timestamp_us, mine)
        return (await self._line.ask(wanted, dict[str, bool], again=overwrite))["written"]

    async def get(self, key: str, *, lease: Duration | None = None, touch: bool = False) -> Value | None:
        """The value under a key, or None."""
        return _value(await self._line.ask(ask.Get(_key(key), span(lease), touch), _Known, again=True))

    async def probe(self, key: str) -> Value | None:
        """What is known of a value, without the value."""
        return _value(await self._line.ask(ask.Probe(_key(key)), _Known, again=True))

    def range(self, low: str = "", high: str | None = None, count: int | None = None) -> AsyncIterator[Value]:
        """The values with keys from `low` to `high`, both included, in the order of the keys."""
        return _each(self.range_pages(low, high, count))

    def match(self, pattern: str, count: int | None = None) -> AsyncIterator[Value]:
        """The values whose keys match a regular expression (RE2), anywhere unless it is anchored."""
        return _each(self.match_pages(pattern, count))

    def range_pages(
        self, low: str = "", high: str | None = None, count: int | None = None
    ) -> AsyncIterator[list[Value]]:
        """The same, many at a time."""
        upper = None if high is None else _key(high)
        wanted = ask.Range(_key(low) if low != "" else "", upper)
        return self._pages(wanted, None if count is None else checks.count(count, "how many"))

    def match_pages(self, pattern: str, count: int | None = None) -> AsyncIterator[list[Value]]:
        """The same, many at a time."""
        check_pattern(checks.pattern_bytes(pattern))
        wanted = ask.Match(spell_text(pattern))
        return self._pages(wanted, None if count is None else checks.count(count, "how many"))

    async def delete(
        self, key: str, *, now: bool = False, timestamp_us: int | None = None, owner: object = None
    ) -> bool:
        """Delete a value with all its keys. NoSuchKey if there is none; False if it was written later."""
        wanted = ask.Delete(_key(key), now, timestamp_us, self._line.owner(owner))
        return (await self._line.ask(wanted, dict[str, bool]))["deleted"]

    async def add(self, key: str, number: int | float, *, owner: object = None) -> int | float:
        """Add to a number, all at once; what it is then."""
        wanted = ask.Add(_key(key), spell(number), self._line.owner(owner))
        total = read((await self._line.ask(wanted, _Number)).value)
        assert isinstance(total, int | float)
        return total

    async def flip(self, key: str, *, owner: object = None) -> bool:
        """Turn a boolean over; what it is then."""
        wanted = ask.Flip(_key(key), self._line.owner(owner))
        return (await self._line.ask(wanted, dict[str, bool]))["value"]

    async def resize(self, key: str, size: int, *, owner: object = None) -> None:
        """Cut a value to `size` bytes, or fill it up with zero bytes."""
        wanted = ask.Resize(_key(key), checks.count(size, "a size"), self._line.owner(owner))
        await self._line.ask(wanted, dict[str, Any])

    async def lock(self, key: str, owner: object, until: Duration = 60.0) -> None:
        """Nobody but `owner` of this client changes the value for that long; Locked if another has it."""
        wanted = ask.Lock(_key(key), self._line.owner(owner), microseconds(until) / 1_000_000)
        await self._line.ask(wanted, dict[str, Any], again=True)

    async def unlock(self, key: str, owner: object) -> None:
        await self._line.ask(ask.Unlock(_key(key), self._line.owner(owner)), dict[str, Any])

    async def rename(self, key: str, other: str, *, owner: object = None) -> None:
        """The value is under `other` from now on, instead of `key`."""
        wanted = ask.Rename(_key(key), _key(other), self._line.owner(owner))
        await self._line.ask(wanted, dict[str, Any])

    async def link(self, key: str, other: str, *, owner: object = None) -> None:
        """One more key for the value under `key`."""
        wanted = ask.Link(_key(key), _key(other), self._line.owner(owner))
        await self._line.ask(wanted, dict[str, Any])

    async def listen(self, key: str, told: Told) -> Callable[[], None]:
        """Call `told` with the key and its new type whenever the value changes; void when it is gone.

        The result ends it. After the connection broke it is called once with the type as it is then: what
        happened meanwhile is not known.
        """
        listener = ValueListener(self._line, ask.Listen(_key(key)), key, told)
        await listener.begin()
        self._listeners.add(listener)

        def stop() -> None:
            self._listeners.discard(listener)
            listener.stop()

        return stop

    async def _pages(self, wanted: ask.Range | ask.Match, count: int | None) -> AsyncIterator[list[Value]]:
        left = count
        while left is None or left > 0:
            wanted.count = left
            page = await self._line.ask(wanted, _Page, again=True)
            yield [value.said() for value in page.values]
            if page.cursor is None:
                return
            left = None if left is None else left - len(page.values)
            wanted.cursor = page.cursor


def _key(key: str) -> Any:
    checks.key_bytes(key)
    return spell_text(key)


def _value(known: _Known) -> Value | None:
    return None if known.value is None else known.value.said()


async def _each(pages: AsyncIterator[list[Value]]) -> AsyncIterator[Value]:
    async for page in pages:
        for value in page:
            yield value
