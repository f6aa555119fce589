"""Order keys: how a key of any supported type becomes 64 bits that sort the same way.

Batch headers, footers and file names hold order keys as unsigned 64-bit numbers. The mapping keeps
order, so comparing them never needs the type:

    index, unsigned    the number itself
    signed, time       the number with its sign bit flipped (times count in the column's own unit)
    float              the IEEE bits; negative ones inverted, others with the sign bit set

Keys must be there (no nulls) and comparable (no NaN). Times must be in Python's years, which is where they
are given back: the instant of a `datetime` can be outside, by its zone.
"""

from __future__ import annotations

import datetime as dt
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.errors import BadSettings, KeyOrder

_Code = tuple[Callable[[Any], int], Callable[[int], Any]]
_TOP = 1 << 63
_MASK = (1 << 64) - 1


def encode_int(value: int) -> int:
    return value + _TOP


def decode_int(key: int) -> int:
    return key - _TOP


def encode_float(value: float) -> int:
    bits: int = struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]  # + 0.0 makes one zero of two
    return bits ^ _MASK if bits & _TOP else bits | _TOP


def decode_float(key: int) -> float:
    bits = key & ~_TOP if key & _TOP else key ^ _MASK
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


def _years(kind: pa.DataType) -> range:
    """Which numbers of a timestamp are in Python's years, in any zone: there is a day between, at least."""
    a_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
    day = 0 if kind.tz in (None, "UTC") else 86400
    least_s, end_s = -62_135_596_800 + day, 253_402_300_800 - day
    return range(max(least_s * a_second, -_TOP), min(end_s * a_second, _TOP))


class KeyColumn:
    """The column of a schema that holds the order key, and what its values mean."""

    def __init__(self, schema: pa.Schema, name: str) -> None:
        at = schema.get_field_index(name)
        if at < 0:
            raise BadSettings(f"order_by names {name!r}, which is not a field: {', '.join(schema.names)}")
        self.name = name
        self.position = at
        self.type = schema.field(at).type
        code: _Code
        if pa.types.is_floating(self.type):
            self.storage, self._format = pa.float64(), "d"
            code = (encode_float, decode_float)
        elif pa.types.is_unsigned_integer(self.type):
            self.storage, self._format = pa.uint64(), "Q"
            code = (int, int)
        elif pa.types.is_signed_integer(self.type) or pa.types.is_timestamp(self.type):
            self.storage, self._format = pa.int64(), "q"
            code = (encode_int, decode_int)
        else:
            raise BadSettings(f"{name!r} is a {self.type}: order keys are integers, floats or timestamps")
        self._encode: Callable[[Any], int] = code[0]
        self._decode: Callable[[int], Any] = code[1]
        self._years = _years(self.type) if pa.types.is_timestamp(self.type) else None

    def encode(self, value: Any) -> int:
        """The 64 bits of one value, which may be a Python object of the column's type or its number."""
        timed = isinstance(value, dt.datetime) and pa.types.is_timestamp(self.type)
        if timed and (value.tzinfo is None) != (self.type.tz is None):
            raise KeyOrder(f"{value!r} must have a time zone if, and only if, the order key has one")
        if isinstance(value, float) and (self._format != "d" or value != value):
            raise KeyOrder(f"{value!r} cannot be the order key {self.name!r}, which is a {self.type}")
        try:
            number = pa.scalar(value, self.type).cast(self.storage).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise KeyOrder(
                f"{value!r} cannot be the order key {self.name!r}, which is a {self.type}"
            ) from error
        if number is None:
            raise KeyOrder(f"the order key {self.name!r} cannot be null")
        if self._years is not None and number not in self._years:
            raise KeyOrder(f"{value!r} is outside the years 1 to 9999, as an instant in {self.type}")
        return self._encode(number)

    def number(self, key: int) -> Any:
        """The plain number of 64 sortable bits."""
        return self._decode(key)

    def sortable(self, number: Any) -> int:
        """The 64 sortable bits of a plain number."""
        return self._encode(number)

    def decode(self, key: int) -> Any:
        """The value of 64 bits, as a Python object of the column's type; times out of its years are cut."""
        number = self._decode(key)
        if self._years is not None and number not in self._years:
            number = self._years[0] if number < 0 else self._years[-1]
        return pa.scalar(number, self.storage).cast(self.type).as_py()

    def span(self, records: pa.RecordBatch, *, strict: bool = False) -> tuple[int, int]:
        """First and last key of a non-empty batch, after checking that they never go backwards."""
        column = self.numbers(records)
        if column.null_count:
            raise KeyOrder(f"the order key {self.name!r} is null in {column.null_count} entries")
        if self._format == "d" and pc.any(pc.is_nan(column)).as_py():
            raise KeyOrder(f"NaN cannot be an order key (field {self.name!r})")
        if len(column) > 1:
            follows = pc.greater if strict else pc.greater_equal
            in_order = follows(column.slice(1), column.slice(0, len(column) - 1))
            if not pc.all(in_order).as_py():
                row = pc.index(in_order, False).as_py() + 1
                raise KeyOrder(
                    f"the order key {self.name!r} goes from {records.column(self.position)[row - 1]} to "
                    f"{records.column(self.position)[row]} at row {row} of the batch: keys must "
                    f"{'increase' if strict else 'not decrease'}"
                )
        return self._encode(column[0].as_py()), self._encode(column[-1].as_py())

    def find(self, records: pa.RecordBatch, key: int) -> int:
        """Row of the first entry of a sorted batch whose key (as 64 bits) is at least `key`."""
        return bisect_left(self._values(records), self._decode(key))

    def find_after(self, records: pa.RecordBatch, key: int) -> int:
        """Row of the first entry of a sorted batch whose key (as 64 bits) is larger than `key`."""
        return bisect_right(self._values(records), self._decode(key))

    def _values(self, records: pa.RecordBatch) -> memoryview[Any]:
        column = self.numbers(records)
        values: memoryview[Any] = memoryview(column.buffers()[1]).cast("B").cast(self._format)  # type: ignore
        return values[column.offset : column.offset + len(column)]

    def numbers(self, records: pa.RecordBatch) -> pa.Array:
        """The keys of a batch as plain numbers, which sort as the keys do."""
        column = records.column(self.position)
        return column if column.type == self.storage else column.cast(self.storage)
