"""JSON rows: entries of a log as text, in the form that `json_lines` reads.

What Arrow can say as text (times, decimals) it says itself, a column at a time; the rest is turned value by
value: bytes into a string or, if they are not UTF-8, into {"base64": "…"}, NaN into "NaN", maps with string
keys into objects.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

_Show = Callable[[Any], Any]


def rows_of(records: pa.RecordBatch, *, sparse: bool = False) -> list[dict[str, Any]]:
    """One dictionary an entry, of values that JSON can hold; `sparse`: without those that are null."""
    names = records.schema.names
    columns = [column_values(column) for column in records.columns]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if sparse:
        return [{name: value for name, value in row.items() if value is not None} for row in rows]
    return rows


def column_values(column: pa.Array) -> list[Any]:
    """The values of a column, as JSON can hold them."""
    text = textual(column.type)
    show = _shower(column.type)
    values: list[Any] = (column if text == column.type else column.cast(text)).to_pylist()
    return values if show is None else [None if value is None else show(value) for value in values]


def show_bytes(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def textual(kind: pa.DataType, *, to_read: bool = False) -> pa.DataType:
    """`kind` with everything in it that Arrow writes best replaced by strings, durations by numbers.

    Arrow reads all of it as well (`to_read`), except times of day.
    """
    types = pa.types

    def inner(part: pa.DataType) -> pa.DataType:
        return textual(part, to_read=to_read)

    if types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind):
        return pa.string()
    if types.is_time(kind):
        return kind if to_read else pa.string()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_struct(kind):
        return pa.struct([field.with_type(inner(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(inner(kind.key_type), inner(kind.item_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(inner(kind.value_type)), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        make = pa.list_ if types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(inner(kind.value_type)))
    return kind


def _shower(kind: pa.DataType) -> _Show | None:
    """What turns a Python value of `kind` (never None) into one for JSON; None: it is one."""
    types = pa.types
    if types.is_floating(kind):
        return _show_float
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return show_bytes
    if types.is_timestamp(kind):
        return lambda text: text.replace(" ", "T", 1)
    if types.is_map(kind):
        return _map_shower(kind)
    if types.is_struct(kind):
        shows = {field.name: _optional(field.type) for field in kind}
        return lambda value: {name: show(value[name]) for name, show in shows.items()}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        show = _optional(kind.value_type)
        return lambda values: [show(value) for value in values]
    return None


def _map_shower(kind: pa.DataType) -> _Show:
    key, item = _optional(kind.key_type), _optional(kind.item_type)
    if pa.types.is_string(kind.key_type):
        return lambda pairs: {name: item(value) for name, value in pairs}
    return lambda pairs: [[key(name), item(value)] for name, value in pairs]


def _optional(kind: pa.DataType) -> _Show:
    show = _shower(kind)
    return lambda value: value if value is None or show is None else show(value)


def _show_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
