"""The entries that are measured: 100 bytes as they are, and an object of five fields.

headrace takes and gives the objects themselves. The peers carry bytes, so they get msgspec's JSON.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import msgspec

from bench.stream.data import Event, events

POOL = 10_000
BYTES = 100
_numbers = count()


@dataclass(frozen=True, slots=True)
class Kind:
    what: str
    type: type
    """As a stream of headrace is declared."""
    order_by: str | None
    encode: Callable[[Any], bytes] | None
    """None: it is bytes already."""
    decode: Callable[[bytes], Any] | None

    def payloads(self, entries: Sequence[Any]) -> Sequence[bytes]:
        return entries if self.encode is None else [self.encode(entry) for entry in entries]


RAW = Kind("100 bytes", bytes, None, None, None)
EVENT = Kind("5 fields", Event, "at", msgspec.json.Encoder().encode, msgspec.json.Decoder(Event).decode)
KINDS = {kind.what: kind for kind in (RAW, EVENT)}


@cache
def entries(what: str, number: int) -> Sequence[Any]:
    """So many entries of a kind."""
    if what == EVENT.what:
        return events(number)
    pool = [os.urandom(BYTES) for _ in range(min(POOL, number))]
    return (pool * -(-number // len(pool)))[:number]


def fresh_name() -> str:
    """The name of a stream that no server has seen in this run."""
    return f"s{next(_numbers)}"
