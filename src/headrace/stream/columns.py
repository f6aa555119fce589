"""Columns: values of a field as an Arrow array, and back, by the column rather than by the value.

Datetimes are the trap: pyarrow takes about 0.4 µs to store one and 4 µs to give it back. A timedelta from
the epoch is stored in a quarter of the time; and msgspec makes datetimes of seconds, as floats, fifty times
faster. Floats hold a microsecond exactly up to the year 2100; other columns go the slow way. Arrow divides a
long column into seconds in no time, but needs 20 µs to begin, in which Python has done it for a short one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.stream.field import FieldType
from headrace.stream.plain import TIMESTAMP

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_since_epoch: Any = _EPOCH.__rsub__  # type: ignore[attr-defined]
_EXACT_US = 4_000_000_000 * 1_000_000
_FEW = 128
_DATETIMES = list[dt.datetime]
_OPTIONAL_DATETIMES = list[dt.datetime | None]


def to_array(values: list[Any], kind: FieldType) -> pa.Array:
    """The column of plain values. ValueError, TypeError or ArrowException if one does not fit."""
    if kind.arrow != TIMESTAMP or kind.quick is not dt.datetime:
        return pa.array(values, kind.arrow)
    if kind.nullable:
        deltas = [None if value is None else value - _EPOCH for value in values]
    else:
        deltas = list(map(_since_epoch, values))
    return pa.array(deltas, pa.duration("us")).view(pa.int64()).view(TIMESTAMP)


def from_array(array: pa.Array, kind: FieldType) -> list[Any]:
    """The values of a column, as they were published."""
    is_times = isinstance(array, pa.TimestampArray) and array.type == TIMESTAMP
    values = _datetimes(array) if is_times else array.to_pylist()
    if kind.from_plain is None:
        return values
    back = kind.from_plain
    return [None if value is None else back(value) for value in values]


def _datetimes(array: pa.Array) -> list[Any]:
    numbers = array.view(pa.int64())
    few = len(array) <= _FEW and not array.null_count
    seconds = _seconds_of_few(numbers) if few else _seconds(numbers)
    if seconds is None:
        return array.to_pylist()  # type: ignore[no-any-return]
    kind = _OPTIONAL_DATETIMES if array.null_count else _DATETIMES
    return msgspec.convert(seconds, kind, strict=False)


def _seconds(numbers: pa.Array) -> list[Any] | None:
    """Microseconds as seconds; None if a float would not hold one exactly."""
    span = pc.min_max(numbers)
    least, most = span["min"].as_py(), span["max"].as_py()
    if least is None:
        return [None] * len(numbers)
    if least < 0 or most > _EXACT_US:
        return None
    return pc.divide(numbers, _second_us()).to_pylist()  # type: ignore[no-any-return]


@cache
def _second_us() -> pa.Scalar:
    """Made when it is needed: that loads pandas, if there is one."""
    return pa.scalar(1e6)


def _seconds_of_few(numbers: pa.Array) -> list[Any] | None:
    """The same, if there are not many, and all are there."""
    values = numbers.to_pylist()
    if min(values, default=0) < 0 or max(values, default=0) > _EXACT_US:
        return None
    return [value / 1e6 for value in values]


class ValueColumns:
    """The columns of a batch by their names, each made when it is first asked for: the order key is usually
    a field as well. One that the batch does not have is all None."""

    def __init__(self, records: pa.RecordBatch, kinds: Mapping[str, FieldType]) -> None:
        self.records = records
        self.names: list[str] = records.schema.names
        self._arrays = dict(zip(self.names, records.columns, strict=True))
        self._kinds = kinds
        self._made: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> list[Any]:
        array, kind = self._arrays.get(name), self._kinds.get(name)
        if array is None:
            return [None] * int(self.records.num_rows)
        if kind is None:  # only an unknown variant has it
            return array.to_pylist()  # type: ignore[no-any-return]
        return from_array(array, kind)
