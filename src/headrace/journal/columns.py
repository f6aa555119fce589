"""Columns: Python values as Arrow arrays, made of their buffers.

`pa.array` would do the same, but the first call of it in a process loads pandas where that is installed, and
that takes half a second: the first pour of a journal would be late by it, and so would every command.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, repeat
from operator import is_not
from typing import Any

import pyarrow as pa

_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_OFFSET_MAX = (1 << 31) - 1
_DIGITS = bytes.maketrans(b"\0\1", b"01")


def column_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Integers, times as integers, bytes or texts, and None, as an array of that type."""
    count = len(values)
    missing = values.count(None)
    if missing == count:
        return _nulls(count, kind) if count <= 1024 else pa.nulls(count, kind)
    there = _bits(values) if missing else None
    if pa.types.is_primitive(kind):
        numbers = array(_CODES[kind.bit_width // 8], [value or 0 for value in values] if missing else values)
        return pa.Array.from_buffers(kind, count, [there, pa.py_buffer(numbers)], missing)
    parts = _encoded(values) if kind == pa.string() else [value or b"" for value in values]
    try:
        ends = array("i", accumulate(map(len, parts), initial=0))
    except OverflowError:  # more than 2 GiB: several chunks
        return pa.array(values, kind)
    buffers = [there, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(kind, count, buffers, missing)


def column_of_one(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    """The same value again and again: its bytes, multiplied."""
    if value is None:
        return _nulls(count, kind) if count <= 1024 else pa.nulls(count, kind)
    if pa.types.is_primitive(kind):
        numbers = array(_CODES[kind.bit_width // 8], (value,)) * count
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers)], 0)
    part = value.encode() if kind == pa.string() else value
    if len(part) * count > _OFFSET_MAX:
        return pa.array([value] * count, kind)
    ends = array("i", range(0, len(part) * count + 1, len(part))) if part else array("i", [0]) * (count + 1)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(ends), pa.py_buffer(part * count)], 0)


def _encoded(texts: Sequence[str | None]) -> list[bytes]:
    """Most columns of texts have few different ones."""
    known = {text: (text or "").encode() for text in set(texts)}
    return [known[text] for text in texts]


def _bits(values: Sequence[Any]) -> pa.Buffer:
    """One bit for each value, set if it is there, the first one lowest."""
    there = bytes(map(is_not, values, repeat(None)))
    digits = there[::-1].translate(_DIGITS)
    return pa.py_buffer(int(digits, 2).to_bytes((len(there) + 7) // 8, "little"))


@cache
def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind)
