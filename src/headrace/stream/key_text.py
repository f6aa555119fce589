"""Order keys as text, for command lines and options: read as the type that a stream is ordered by.

    index, integers     5
    floats              0.25
    times               ISO 8601: 2024-07-01T12:00:00Z, 2024-07-01T14:00+02:00, 2024-07-01

A time without a zone is taken as UTC, unless the stream's own times have none.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.kernel.errors import KeyOrder
from headrace.stream.stream import Stream

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNIT_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_BELOW_A_MICROSECOND = re.compile(r"[.,]\d{6}(\d{1,3})")


def parse_key(text: str, stream: Stream, note: Callable[[str], None] = lambda text: None) -> Any:
    """The key that `text` says, as `at_key` takes it, or KeyOrder with a sentence.

    `note` is told what was assumed.
    """
    name = stream.order_by
    kind = pa.int64() if name is None else stream.schema.field(name).type
    try:
        if pa.types.is_timestamp(kind):
            return _parse_time(text, kind, note)
        return float(text) if pa.types.is_floating(kind) else int(text)
    except ValueError:
        wanted = (
            "a time in ISO 8601, such as 2024-07-01T12:00:00Z"
            if pa.types.is_timestamp(kind)
            else "a number"
            if pa.types.is_floating(kind)
            else "a whole number"
        )
        ordered = "index" if name is None else f"{name!r} ({kind})"
        raise KeyOrder(f"{text!r} is not {wanted}: stream {stream.name!r} is ordered by {ordered}") from None


def _parse_time(text: str, kind: pa.DataType, note: Callable[[str], None]) -> int:
    """The moment in the column's own unit, rounded up: the first entry at or after it is meant."""
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is not None and kind.tz is None:
        raise KeyOrder(f"{text!r} has a time zone, and the times of this stream have none: leave it out")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
        if kind.tz is not None:
            note(f"{text} has no time zone: it is taken as UTC ({moment.isoformat()})")
    rest = _BELOW_A_MICROSECOND.search(text)
    ns = (moment - _EPOCH) // dt.timedelta(microseconds=1) * 1000
    ns += int(rest[1].ljust(3, "0")) if rest else 0
    return -(-ns // _UNIT_NS[kind.unit])
