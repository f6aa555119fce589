"""States: what a producer remembers, by partition key, kept by Spark between batches.

Asking Spark's state store for one value costs a tenth of a millisecond, so states are not kept one by one
but in *pages*: a page is a map from partition keys to states, and a bucket has 64 of them. What a batch
touches is loaded once and stored once, whatever the number of entries.

A state that equals a new one is not kept: to forget a key is to put its state back to what it was at first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.kernel.errors import SchemaMismatch

PAGES = 64
STATE_ADVICE = "name a dataclass or a msgspec.Struct, with the types of its fields, as State"

Load = Callable[[int], bytes | None]
Save = Callable[[int, bytes | None], None]
"""Of a page: None means that there is nothing on it."""


def check_state_kind(kind: Any) -> None:
    """Refuse a State that cannot be made, stored and given back, before Spark is started for it."""
    try:
        kind()
    except TypeError as error:
        raise SchemaMismatch(f"State must be a class that is made without arguments: {error}") from None
    try:
        back = msgspec.msgpack.decode(msgspec.msgpack.encode(kind()), type=kind)
        if type(back) is not kind:
            raise TypeError(f"it comes back as a {type(back).__name__}")
    except (TypeError, msgspec.MsgspecError) as error:
        raise SchemaMismatch(f"{kind.__name__} cannot be a State ({error}): {STATE_ADVICE}") from None


class States:
    """The states of one bucket, while a batch is worked on."""

    def __init__(self, kind: type, load: Load, save: Save) -> None:
        self._kind = kind
        self._fresh = kind()
        self._load = load
        self._save = save
        self._decode: Callable[[Any], Any] = msgspec.msgpack.Decoder(kind).decode
        self._pages: dict[int, dict[bytes, msgspec.Raw]] = {}
        self._live: dict[bytes, Any] = {}

    def get(self, key: bytes) -> Any:
        """The state of a partition key, new if there is none: change it in place."""
        state = self._live.get(key)
        if state is None:
            raw = self._page(page_of(key)).get(key)
            state = self._live[key] = self._kind() if raw is None else self._decode(raw)
        return state

    def all(self) -> list[tuple[bytes, Any]]:
        """Every state that is not as new, in the order of the keys."""
        for page in range(PAGES):
            for key in self._page(page):
                self.get(key)
        return [(key, state) for key, state in sorted(self._live.items()) if state != self._fresh]

    def store(self) -> None:
        """Give back what has changed."""
        changed: set[int] = set()
        for key, state in self._live.items():
            page = self._page(page_of(key))
            if state == self._fresh:
                if page.pop(key, None) is not None:
                    changed.add(page_of(key))
                continue
            raw = self._encode(state)
            if key not in page or bytes(page[key]) != raw:
                page[key] = msgspec.Raw(raw)
                changed.add(page_of(key))
        for number in sorted(changed):
            page = self._pages[number]
            self._save(number, msgspec.msgpack.encode(page) if page else None)

    def _page(self, number: int) -> dict[bytes, msgspec.Raw]:
        if number not in self._pages:
            raw = self._load(number)
            self._pages[number] = (
                {} if raw is None else msgspec.msgpack.decode(raw, type=dict[bytes, msgspec.Raw])
            )
        return self._pages[number]

    def _encode(self, state: Any) -> bytes:
        """The state as bytes; refused if it would come back as something else."""
        try:
            raw = msgspec.msgpack.encode(state)
            back = self._decode(raw)
            # NaN does not equal itself: then it must look the same, as bytes and as text.
            same = back == state or (msgspec.msgpack.encode(back) == raw and repr(back) == repr(state))
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise SchemaMismatch(f"the state {state!r} cannot be stored ({error}): {STATE_ADVICE}") from error
        if not same:
            raise SchemaMismatch(f"the state {state!r} would come back as {back!r}: {STATE_ADVICE}")
        return raw


def page_of(key: bytes) -> int:
    # Not the bits that chose the bucket: those are the same for all keys of it.
    return zlib.crc32(key, 1) % PAGES
