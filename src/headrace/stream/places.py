"""Places in a stream: where listening starts and where it ends.

at_key(t)      the first entry whose order key is at least t
START, END     the oldest entry; behind the newest one
5              the entry with index 5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headrace.kernel.errors import Refused
from headrace.log.log import Log

START: Literal["start"] = "start"
END: Literal["end"] = "end"


def check_count(count: object) -> None:
    """Refuse what is no number of entries to listen to."""
    if count is not None and (not isinstance(count, int) or count < 0):
        raise Refused(f"count is a number of entries from 0 on, not {count!r}")


@dataclass(frozen=True, slots=True)
class AtKey:
    key: Any


@dataclass(frozen=True, slots=True)
class Bits:
    """The place of an order key that is given as its 64 sortable bits: for those who have no other form."""

    key: int


Place = int | AtKey | Bits | Literal["start", "end"] | None


def at_key(key: Any) -> AtKey:
    """The place of the first entry whose order key is at least `key`."""
    return AtKey(key)


def start_index(log: Log, place: Place) -> int:
    """The index where listening from `place` starts."""
    match place:
        case None | "start":
            return 0
        case "end":
            return log.next_index
        case AtKey(key):
            return log.seek_key(key)
        case Bits(key):
            return log.seek_sortable(key)
        case int():
            return place
    raise Refused(f"a place is an index, at_key(…), 'start' or 'end', not {place!r}")


@dataclass(frozen=True, slots=True)
class Limit:
    """Where listening ends: before an index, or before the first entry with at least this key (sortable)."""

    index: int | None = None
    key: int | None = None


def limit_of(log: Log, until: Place) -> Limit:
    match until:
        case None:
            return Limit()
        case "end":
            return Limit(index=log.next_index)
        case AtKey(key):
            return Limit(key=log.sortable_key(key))
        case Bits(key):
            return Limit(key=key)
        case int():
            return Limit(index=until)
    raise Refused(f"listening ends at an index, at_key(…) or 'end', not {until!r}")
