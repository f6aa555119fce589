"""Fields: how a schema is written on the command line.

    at:timestamp[us, tz=UTC] not null

A name, a colon, an Arrow type by Arrow's own name, and `not null` where nulls are refused. Besides the
names that Arrow knows (int64, string, float64, bool, binary, date32, …) there are timestamps with a zone,
decimals and lists.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns),\s*tz=([^\]]+)\]")
_DECIMAL = re.compile(r"decimal(128|256)\((\d+),\s*(-?\d+)\)")
_LIST = re.compile(r"list<(?:\w+:\s*)?(.+)>")
_NOT_NULL = " not null"
_DEPTH_MAX = 16


def parse_field(text: str) -> pa.Field:
    """The field that `text` describes, or ValueError with a sentence."""
    name, colon, kind = text.partition(":")
    if not colon or not name.strip() or not kind.strip():
        raise ValueError(f"{text!r} is not name:type, such as user:string or amount:float64")
    nullable = not kind.endswith(_NOT_NULL)
    return pa.field(name.strip(), parse_type(kind.removesuffix(_NOT_NULL).strip()), nullable=nullable)


def parse_type(text: str) -> pa.DataType:
    if match := _TIMESTAMP.fullmatch(text):
        return _zoned(match[1], match[2])
    if match := _DECIMAL.fullmatch(text):
        return _decimal(int(match[1]), int(match[2]), int(match[3]))
    if text.count("<") > _DEPTH_MAX:
        raise ValueError(f"{text[:40]!r}… is a list of lists of lists …: {_DEPTH_MAX} are allowed")
    if match := _LIST.fullmatch(text):
        return pa.list_(parse_type(match[1]))
    try:
        return pa.type_for_alias(text)
    except ValueError:
        some = "int64, string, float64, bool, binary, timestamp[us, tz=UTC], date32, list<string>"
        raise ValueError(f"{text!r} is not an Arrow type: some are {some}") from None


def describe_schema(schema: pa.Schema) -> list[dict[str, Any]]:
    """The fields of a schema for machines."""
    return [
        {"name": field.name, "type": str(field.type), "nullable": bool(field.nullable)} for field in schema
    ]


def describe_field(field: pa.Field) -> str:
    """What `parse_field` reads."""
    return f"{field.name}:{field.type}{'' if field.nullable else _NOT_NULL}"


def _zoned(unit: str, zone: str) -> pa.DataType:
    kind = pa.timestamp(unit, tz=zone)
    try:
        pa.array([0], pa.int64()).cast(kind).cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueError(f"{zone!r} is not a time zone, such as UTC, Europe/Paris or +01:00") from None
    return kind


def _decimal(bits: int, precision: int, scale: int) -> pa.DataType:
    try:
        return (pa.decimal128 if bits == 128 else pa.decimal256)(precision, scale)
    except (pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise ValueError(f"decimal{bits}({precision}, {scale}) is not possible: {error}") from None
