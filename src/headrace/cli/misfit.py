"""Misfits: which row it is that a stream refuses, and why, when a whole batch was refused.

Streams say which column does not fit. People who publish a file want to know where in the file.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.stream import Stream
from headrace.wire.casting import first_failing


def find_misfit(records: pa.RecordBatch, stream: Stream) -> tuple[int, str, str] | None:
    """The first row of `records` that cannot be in the stream, its field, and the reason; None: unknown."""
    for field in stream.schema:
        at = records.schema.get_field_index(field.name)
        if at < 0:
            continue
        column = records.column(at)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not field.nullable and column.null_count:
            row = pc.index(pc.is_null(column), True).as_py()
            return row, field.name, "it may not be null"
        row = first_failing(column, field.type)
        if row >= 0:
            return row, field.name, f"{column[row]} does not fit {field.type}"
    return _out_of_order(records, stream)


def _out_of_order(records: pa.RecordBatch, stream: Stream) -> tuple[int, str, str] | None:
    name = stream.order_by
    at = -1 if name is None else records.schema.get_field_index(name)
    if name is None or at < 0 or len(records) == 0:
        return None
    keys = records.column(at).cast(stream.schema.field(name).type)
    strict = stream.log.meta.strict
    follows = (pc.greater if strict else pc.greater_equal)(keys.slice(1), keys.slice(0, len(keys) - 1))
    row = pc.index(follows, False).as_py() + 1
    if row == 0:
        return None
    must = "increase" if strict else "not go back"
    return row, name, f"the order key goes from {keys[row - 1]} to {keys[row]}: it must {must}"
