"""Reading many values: a range of keys, or those that match a regular expression, page by page.

A *cursor* says where the next page begins and what is wanted. It is a few bytes that the client gives back:
the journal remembers nothing, so a cursor costs nothing and never ends.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from itertools import islice

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.journal.columns import column_of
from headrace.journal.errors import BadRequest
from headrace.journal.rows import ValueRow
from headrace.journal.values import FIRST_KEY, ValueTable

PAGE = 1000
PAGE_MAX = 65_535
_LOOK_AT = 4096
"""Keys matched at a time: enough to make the matching cheap."""
_LOOK_AT_MOST = 16 * _LOOK_AT
"""Keys matched for one page, however few of them match: nobody else is served meanwhile."""


class Cursor(msgspec.Struct, array_like=True, frozen=True):
    """What comes after `after`, up to and including `high`, matching `pattern`."""

    after: bytes | None
    low: bytes
    high: bytes | None
    pattern: bytes | None


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[tuple[bytes, ValueRow]]
    cursor: bytes | None
    """None if there is no more."""


def read_page(table: ValueTable, wanted: Cursor, count: int = PAGE, budget_bytes: int = 1 << 62) -> Page:
    """At most `count` values, and about `budget_bytes` of them, in the order of their keys."""
    count = min(count or PAGE_MAX, PAGE_MAX)
    found: list[tuple[bytes, ValueRow]] = []
    low, inclusive = (wanted.low, True) if wanted.after is None else (wanted.after, False)
    if low < FIRST_KEY:  # a cursor comes from outside: whoever made it up sees no more than others
        low, inclusive = FIRST_KEY, True
    keys = table.by_key.irange(low, wanted.high, (inclusive, True))
    size = looked = 0
    while looked_at := list(islice(keys, _LOOK_AT if wanted.pattern is not None else count + 1)):
        for key in looked_at if wanted.pattern is None else _matching(looked_at, wanted.pattern):
            if len(found) >= count or size >= budget_bytes:
                return Page(found, encode_cursor(wanted, found[-1][0]))
            row = table.by_key[key]
            found.append((key, row))
            size += len(key) + table.size_of(row)
        looked += len(looked_at)
        if wanted.pattern is not None and looked >= _LOOK_AT_MOST:
            return Page(found, encode_cursor(wanted, looked_at[-1]))
    return Page(found, None)


def encode_cursor(wanted: Cursor, after: bytes) -> bytes:
    """Without its lower end, which says no more than `after`: keys may be long, and a cursor has to fit."""
    return msgspec.msgpack.encode(Cursor(after, b"", wanted.high, wanted.pattern))


def decode_cursor(raw: bytes) -> Cursor:
    try:
        return msgspec.msgpack.decode(raw, type=Cursor)
    except msgspec.MsgspecError as error:
        raise BadRequest("this is no cursor of a journal: begin the read again") from error


def _matching(keys: list[bytes], pattern: bytes) -> list[bytes]:
    array = column_of(keys, pa.binary())
    with contextlib.suppress(pa.ArrowInvalid):  # keys that are no UTF-8 are matched byte by byte
        array = array.cast(pa.string())
    try:
        mask = pc.match_substring_regex(array, pattern.decode())
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise BadRequest(f"{pattern.decode(errors='replace')!r} is no RE2 expression: {error}") from error
    return [key for key, matches in zip(keys, mask.to_pylist(), strict=True) if matches]


def check_pattern(pattern: bytes) -> None:
    """BadRequest if it is no expression, even when there is nothing to match."""
    _matching([b""], pattern)
