"""Schemas that are inferred: from a sample of JSON lines or CSV, or from a file that has one.

Strings that are all ISO 8601 become times: with a zone timestamp[us, tz=UTC], without one timestamp[us],
dates alone date32. Nothing inferred from text is required, because a sample cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from headrace.cli.rows import BadInput

_SAMPLE_LINES = 10_000
_TIMES = (pa.timestamp("us", tz="UTC"), pa.date32(), pa.timestamp("us"))


def schema_of_lines(lines: Sequence[tuple[int, bytes]]) -> pa.Schema:
    """The fields of JSON objects, in the order in which they appear first."""
    columns: dict[str, list[Any]] = {}
    sample = [(number, line) for number, line in lines[:_SAMPLE_LINES] if line.strip()]
    for number, line in sample:
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadInput(f"line {number} is not a JSON object: {error}") from error
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    if not columns:
        raise BadInput("there is no line to infer the fields from")
    return pa.schema([pa.field(name, _type_of(name, values)) for name, values in columns.items()])


def decided(schema: pa.Schema) -> pa.Schema:
    """A file's schema as a stream can have it: no dictionaries, nulls, nanoseconds or metadata."""
    return pa.schema([pa.field(one.name, _decided(one.type), one.nullable) for one in schema])


def _decided(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    return pa.string() if pa.types.is_null(kind) else kind


def _type_of(name: str, values: list[Any]) -> pa.DataType:
    try:
        found = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        advice = "create the stream with --field, and say what it is"
        raise BadInput(f"the field {name!r} has values of several kinds ({error}): {advice}") from error
    kind = found.type
    if pa.types.is_struct(kind) and [one.name for one in kind] == ["base64"]:
        return pa.binary()
    return timely(found) if pa.types.is_string(kind) else _decided(kind)


def timely(texts: pa.Array) -> pa.DataType:
    """The type of time that all of these texts are, or string."""
    for kind in _TIMES if texts.null_count < len(texts) else ():
        try:
            texts.cast(kind)
        except pa.ArrowException:
            continue
        return kind
    return pa.string()
