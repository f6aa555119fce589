"""Plain values: the Python types that become one Arrow value each, and which of their values fit."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch
from headrace.stream.field import BadValue, FieldType, shown

TIMESTAMP = pa.timestamp("us", tz="UTC")
_DECIMAL = pa.decimal128(38, 18)


def taking(kind: type | tuple[type, ...], say: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def to_plain(value: Any) -> Any:
        if not isinstance(value, kind):
            raise BadValue(f"expected {say}, got {shown(value)}")
        return convert(value)

    return to_plain


def _int64(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise BadValue(f"{value} does not fit 64 bits")
    return int(value)


def _bool(value: Any) -> bool:
    return bool(value)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise BadValue("the number is too large for a float") from None


def instant(value: dt.datetime) -> dt.datetime:
    """The same instant in UTC: compared as they are stored, also in the hour that a clock is put back."""
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadValue(f"{value} has no time zone: give it one, e.g. datetime.now(timezone.utc)")
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise BadValue(f"{value} is outside the years 1 to 9999 in UTC") from None


def check_zones(kind: pa.DataType, where: str) -> None:
    """Refuse time zones, at any depth, that are not known here: their times could not be given back."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            pa.scalar(0, kind).as_py()
        except (LookupError, ValueError, pa.ArrowException):  # whoever looks it up has an error of its own
            raise SchemaMismatch(f"{where}: the time zone {kind.tz!r} is not known") from None
    for at in range(kind.num_fields):
        check_zones(kind.field(at).type, where)


def _duration(value: dt.timedelta) -> dt.timedelta:
    if not -(1 << 63) <= value // dt.timedelta(microseconds=1) < 1 << 63:
        raise BadValue(f"{value} does not fit 64 bits of microseconds")
    return value


def _date(value: dt.date) -> dt.date:
    if isinstance(value, dt.datetime):
        raise BadValue(f"expected date, got datetime {value}")
    return value


def _time(value: dt.time) -> dt.time:
    if value.tzinfo is not None:
        raise BadValue(f"{value} has a time zone, which a time of day cannot keep")
    return value


def fitting_decimal(kind: pa.DataType) -> Callable[[decimal.Decimal], decimal.Decimal]:
    traps = [decimal.Inexact, decimal.InvalidOperation, decimal.Overflow]
    exact = decimal.Context(prec=kind.precision, traps=traps)
    unit = decimal.Decimal(1).scaleb(-kind.scale)

    def check(value: decimal.Decimal) -> decimal.Decimal:
        if not value.is_finite():
            raise BadValue(f"{value} is not a number that can be stored")
        try:
            return value.quantize(unit, context=exact)
        except decimal.DecimalException:
            text = shown(value)
            raise BadValue(f"{text} does not fit {kind}: choose one with Annotated[Decimal, …]") from None

    return check


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadValue(f"{shown(value)} is not valid text: {error.reason}") from error
    return str.__str__(value)


PLAIN: dict[Any, FieldType] = {
    bool: FieldType(pa.bool_(), taking(bool, "bool", _bool), quick=bool),
    int: FieldType(pa.int64(), taking(int, "int", _int64), quick=int),
    float: FieldType(pa.float64(), taking((float, int), "float", _float), quick=float),
    str: FieldType(pa.string(), taking(str, "str", _text), quick=str),
    bytes: FieldType(pa.binary(), taking((bytes, bytearray, memoryview), "bytes", bytes), quick=bytes),
    dt.datetime: FieldType(TIMESTAMP, taking(dt.datetime, "datetime", instant), quick=dt.datetime),
    dt.date: FieldType(pa.date32(), taking(dt.date, "date", _date)),
    dt.time: FieldType(pa.time64("us"), taking(dt.time, "time", _time)),
    dt.timedelta: FieldType(pa.duration("us"), taking(dt.timedelta, "timedelta", _duration)),
    decimal.Decimal: FieldType(_DECIMAL, taking(decimal.Decimal, "Decimal", fitting_decimal(_DECIMAL))),
    uuid.UUID: FieldType(
        pa.binary(16), taking(uuid.UUID, "UUID", lambda value: value.bytes), lambda raw: uuid.UUID(bytes=raw)
    ),
}


def arrow_field_type(field: pa.Field) -> FieldType:
    """How values of an Arrow field are checked when there is no Python type."""
    for made in PLAIN.values():
        if made.quick is not None and made.arrow == field.type:
            return made.optional() if field.nullable else made

    def to_plain(value: Any) -> Any:
        try:
            pa.scalar(value, field.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise BadValue(f"expected {field.type}, got {shown(value)}") from error
        return value

    made = FieldType(field.type, to_plain)
    return made.optional() if field.nullable else made.required(f"the field {field.name!r}")
