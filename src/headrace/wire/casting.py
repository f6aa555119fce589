"""Casting: which value it is that does not fit, when Arrow only says that one does not."""

from __future__ import annotations

import pyarrow as pa


def first_failing(column: pa.Array, kind: pa.DataType) -> int:
    """The first row whose value cannot be cast to `kind`; -1 if all can."""
    if column.type == kind or _casts(column, kind):
        return -1
    low, high = 0, len(column)  # rows below `low` are fine; one of those below `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        if _casts(column.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    return low


def _casts(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowException:
        return False
    return True
