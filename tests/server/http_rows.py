"""Entries of many types, for properties: as Python has them, and as JSON says them."""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "i64": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "u64": (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    "f32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "f64": (pa.float64(), st.floats(allow_nan=False)),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"))),
    "blob": (pa.binary(), st.binary()),
    "four": (pa.binary(4), st.binary(min_size=4, max_size=4)),
    "at": (
        pa.timestamp("us", tz="UTC"),
        st.datetimes(min_value=dt.datetime(1900, 1, 1), timezones=st.just(dt.UTC)),
    ),
    "local": (pa.timestamp("us"), st.datetimes(min_value=dt.datetime(1900, 1, 1))),
    "day": (pa.date32(), st.dates()),
    "hour": (pa.time64("us"), st.times()),
    "span": (pa.duration("us"), st.timedeltas(dt.timedelta(-(10**8)), dt.timedelta(10**8))),
    "price": (pa.decimal128(20, 4), st.decimals(-(10**15), 10**15, places=4)),
    "some": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(-9, 9), max_size=3)),
    "inner": (
        pa.struct([("a", pa.int64()), ("b", pa.binary())]),
        st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | st.binary(max_size=3)}),
    ),
    "words": (
        pa.map_(pa.string(), pa.int64()),
        st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(0, 9), max_size=2),
    ),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _KINDS.items()])


def rows() -> st.SearchStrategy[dict[str, Any]]:
    """Entries of SCHEMA; any field may be null."""
    return st.fixed_dictionaries({name: st.none() | values for name, (_, values) in _KINDS.items()})


def as_json(value: Any) -> Any:
    """A value as the page on HTTP says that JSON has it."""
    match value:
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dt.timedelta():
            return value // dt.timedelta(microseconds=1)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case dict():
            return {name: as_json(inner) for name, inner in value.items()}
        case list():
            return [as_json(inner) for inner in value]
    return value
