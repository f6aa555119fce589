"""What can be done with values, to a journal and to its model."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from headrace.journal import Type

from .machine import SECOND_US, START_US, Machine, data, mostly, rarely, seconds, some_seconds
from .models import ModelValue, added, flipped, resized

KEYS = ["a", "aa", "ab", "b", "é", "z"]
TYPES = {type(None): 0, bytes: 1, str: 2, int: 3, float: 4, bool: 5}
offsets = st.none() | st.sampled_from([-60, -5, -1, 0, 1, 5])
owners = st.sampled_from([None, "me", "you"])


class ValueRules(Machine):
    @rule(
        key=st.sampled_from(KEYS),
        value=data,
        ttl=st.none() | some_seconds,
        persist=mostly,
        overwrite=mostly,
        stamp=st.none() | offsets,
        owner=owners,
    )
    def set(
        self,
        key: str,
        value: Any,
        ttl: int | None,
        persist: bool,
        overwrite: bool,
        stamp: int | None,
        owner: str | None,
    ) -> None:
        now = self.now
        at = None if stamp is None else START_US + stamp * SECOND_US
        life = None if ttl is None else ttl * SECOND_US
        expires = None if life is None else now + life
        new = ModelValue([key], value, now if at is None else at, expires, life, persist, now, now)

        hidden = dict(self.values.hidden)

        def model() -> bool:
            if at is None:
                new.stamp = self.values.latest(now, key)
            answer = self.values.set(now, key, new, overwrite, owner)
            if answer is None:  # either will do
                answer = self.journal.probe(key) is not None or expires == now
                if answer:
                    self.values.store(key, None, new)
            if at is None and expires != now and key in hidden:
                new.stamp = self.journal.probe(key).timestamp_us  # later than what may have come back
                self.values.find(now, key).stamp = new.stamp
            return answer

        self.both(
            lambda: self.journal.set(
                key, value, ttl=ttl, persist=persist, overwrite=overwrite, timestamp_us=at, owner=owner
            ),
            model,
        )

    @rule(key=st.sampled_from(KEYS), lease=st.none() | some_seconds, touch=rarely)
    def get(self, key: str, lease: int | None, touch: bool) -> None:
        now = self.now
        found = self.journal.get(key, lease=lease, touch=touch)
        value = self.values.find(now, key)
        assert (found is None) == (value is None)
        if value is None:
            return
        if lease is not None:
            value.lease = now + lease * SECOND_US
        if touch:
            self.values.touch(now, value)
        self._same(found, key, value, touched=touch)

    @rule(key=st.sampled_from(KEYS))
    def probe(self, key: str) -> None:
        found, value = self.journal.probe(key), self.values.find(self.now, key)
        assert (found is None) == (value is None)
        if value is not None:
            self._same(found, key, value, whole=False)

    @rule(key=st.sampled_from(KEYS), erase=rarely, stamp=st.none() | offsets, owner=owners)
    def delete(self, key: str, erase: bool, stamp: int | None, owner: str | None) -> None:
        now = self.now
        at = None if stamp is None else START_US + stamp * SECOND_US
        self.both(
            lambda: self.journal.delete(key, now=erase, timestamp_us=at, owner=owner),
            lambda: self.values.delete(now, key, at, erase, owner),
        )

    @rule(key=st.sampled_from(KEYS), step=st.sampled_from([1, -3, 0.5, 2**62]), owner=owners)
    def add(self, key: str, step: Any, owner: str | None) -> None:
        now = self.now
        self.both(
            lambda: self.journal.add(key, step, owner=owner),
            lambda: self.values.rewrite(now, key, owner, lambda value: added(value, step)),
        )

    @rule(key=st.sampled_from(KEYS), owner=owners)
    def flip(self, key: str, owner: str | None) -> None:
        now = self.now
        self.both(
            lambda: self.journal.flip(key, owner=owner),
            lambda: self.values.rewrite(now, key, owner, flipped),
        )

    @rule(key=st.sampled_from(KEYS), size=st.sampled_from([0, 3, 200]), owner=owners)
    def resize(self, key: str, size: int, owner: str | None) -> None:
        now = self.now
        value = self.values.find(now, key)
        if value is not None and not isinstance(value.value, bytes | str):
            return

        def model() -> None:
            self.values.rewrite(now, key, owner, lambda raw: resized(raw, size))

        self.both(lambda: self.journal.resize(key, size, owner=owner), model)

    @rule(key=st.sampled_from(KEYS), owner=st.sampled_from(["me", "you"]), until=seconds)
    def lock(self, key: str, owner: str, until: int) -> None:
        now = self.now

        def model() -> None:
            value = self.values.to_change(now, key, owner)
            value.owner, value.lock_until = owner, now + until * SECOND_US

        self.both(lambda: self.journal.lock(key, owner, until), model)

    @rule(key=st.sampled_from(KEYS), owner=st.sampled_from(["me", "you"]))
    def unlock(self, key: str, owner: str) -> None:
        now = self.now

        def model() -> None:
            self.values.to_change(now, key, owner).owner = None

        self.both(lambda: self.journal.unlock(key, owner), model)

    @rule(key=st.sampled_from(KEYS), other=st.sampled_from(KEYS), owner=owners)
    def rename(self, key: str, other: str, owner: str | None) -> None:
        now = self.now
        self.both(
            lambda: self.journal.rename(key, other, owner=owner),
            lambda: self.values.rename(now, key, other, owner),
        )

    @rule(key=st.sampled_from(KEYS), other=st.sampled_from(KEYS), owner=owners)
    def link(self, key: str, other: str, owner: str | None) -> None:
        now = self.now
        self.both(
            lambda: self.journal.link(key, other, owner=owner),
            lambda: self.values.link(now, key, other, owner),
        )

    @rule(
        low=st.sampled_from(["", *KEYS]),
        high=st.none() | st.sampled_from(KEYS),
        count=st.none() | st.integers(0, 3),
    )
    def range(self, low: str, high: str | None, count: int | None) -> None:
        found = list(self.journal.range(low, high, count))
        keys = [key for key in self._keys() if key >= low and (high is None or key <= high)]
        self._all_same(found, keys if count is None else keys[:count])

    @rule(pattern=st.sampled_from(["a", "^a$", "b|z", "^..$", "."]), count=st.none() | st.integers(0, 2))
    def match(self, pattern: str, count: int | None) -> None:
        wanted = {
            "a": ["a", "aa", "ab"],
            "^a$": ["a"],
            "b|z": ["ab", "b", "z"],
            "^..$": ["aa", "ab"],
            ".": KEYS,
        }[pattern]
        found = list(self.journal.match(pattern, count))
        keys = [key for key in self._keys() if key in wanted]
        self._all_same(found, keys if count is None else keys[:count])

    # --- comparing

    def look_at_values(self) -> None:
        self._all_same(list(self.journal.range()), self._keys())
        stats = self.journal.stats()
        assert stats.values == len(self._keys())
        assert stats.memory_bytes >= 0

    def _keys(self) -> list[str]:
        self.values.find(self.now, "")
        return sorted((key for value in self.values.values for key in value.keys), key=str.encode)

    def _all_same(self, found: list[Any], keys: list[str]) -> None:
        assert [each.key for each in found] == keys
        for each, key in zip(found, keys, strict=True):
            value = self.values.find(self.now, key)
            assert value is not None
            self._same(each, key, value)

    def _same(
        self, found: Any, key: str, value: ModelValue, *, whole: bool = True, touched: bool = False
    ) -> None:
        assert found.key == key
        if whole:
            assert (found.value, type(found.value)) == (value.value, type(value.value))
        assert found.type == Type(TYPES[type(value.value)])
        assert (found.expires_us, found.ttl_us) == (value.expires, value.ttl)
        assert (found.persist, found.timestamp_us) == (value.persist, value.stamp)
        assert (found.created_us, found.modified_us) == (value.created, value.modified)
        assert found.modified_us <= found.accessed_us <= self.now
        assert found.locked == (
            (value.owner is not None and value.lock_until > self.now) or value.lease > self.now
        )
        assert sorted(found.keys) == (sorted(value.keys) if len(value.keys) > 1 else [])
