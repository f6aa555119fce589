"""Types: how one field of an entry is stored, by its Python annotation.

    int float bool str bytes          int64 double bool string binary
    datetime (with a zone)            timestamp[us, UTC]: the instant is kept, the zone's name is not
    date time timedelta               date32 time64[us] duration[us]
    Decimal                           decimal128(38, 18), or Annotated[Decimal, pa.decimal128(p, s)]
    UUID                              fixed_size_binary[16]
    Enum, Literal                     their values, if all are strings or all integers; else enum names
    list tuple[T, ...] set frozenset  list
    dict[K, V]                        map
    dataclass, msgspec.Struct         struct; a union of several: struct with a `_type` field
    T | None                          the same, nullable

`Annotated[T, <Arrow type>]` chooses another Arrow type for a plain T (int32 for an int, say).

A value is checked when it is published, so that a wrong one is refused on the spot. Checking converts as
well: `to_plain` gives what pyarrow stores, `from_plain` the value again. Values whose class is exactly
`quick` need neither, which is the usual case and the fast one.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch

TIMESTAMP = pa.timestamp("us", tz="UTC")
_DECIMAL = pa.decimal128(38, 18)


class BadValue(Exception):
    """A value that its field cannot hold; becomes BadEntry with the field's name."""


@dataclass(frozen=True, slots=True)
class FieldType:
    arrow: pa.DataType
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any] | None = None
    quick: type | None = None
    nullable: bool = False

    @property
    def sized(self) -> bool:
        """Whether values differ in size, so that it must be counted."""
        return self.quick in (str, bytes)

    def optional(self) -> FieldType:
        convert, back = self.to_plain, self.from_plain
        return FieldType(
            self.arrow,
            lambda value: None if value is None else convert(value),
            back and (lambda value: None if value is None else back(value)),
            self.quick,
            nullable=True,
        )


def field_type(annotation: Any, where: str) -> FieldType:
    """How values of this annotation are stored, or SchemaMismatch saying what is not supported."""
    arrow = None
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        arrow = next((note for note in notes if isinstance(note, pa.DataType)), None)
    if isinstance(annotation, typing.NewType):
        return field_type(annotation.__supertype__, where)
    if annotation in _PLAIN:
        made = _PLAIN[annotation]
        return made if arrow is None else _narrowed(annotation, arrow, where)
    if get_origin(annotation) in (Union, types.UnionType):
        return _union(get_args(annotation), where)
    if get_origin(annotation) is Literal:
        return _choice({value: value for value in get_args(annotation)}, where)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum(annotation, where)
    return _container(annotation, where)


# --- plain values


def _taking(kind: type | tuple[type, ...], say: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def to_plain(value: Any) -> Any:
        if not isinstance(value, kind):
            raise BadValue(f"expected {say}, got {_shown(value)}")
        return convert(value)

    return to_plain


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:40] + '…'}"


def _int64(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise BadValue(f"{value} does not fit 64 bits")
    return int(value)


def _bool(value: Any) -> bool:
    return bool(value)


def _instant(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is None or value.utcoffset() is None:
        raise BadValue(f"{value} has no time zone: give it one, e.g. datetime.now(timezone.utc)")
    return value


def _date(value: dt.date) -> dt.date:
    if isinstance(value, dt.datetime):
        raise BadValue(f"expected date, got datetime {value}")
    return value


def _time(value: dt.time) -> dt.time:
    if value.tzinfo is not None:
        raise BadValue(f"{value} has a time zone, which a time of day cannot keep")
    return value


def _decimal(kind: pa.DataType) -> Callable[[decimal.Decimal], decimal.Decimal]:
    whole = kind.precision - kind.scale

    def check(value: decimal.Decimal) -> decimal.Decimal:
        if not value.is_finite():
            raise BadValue(f"{value} is not a number that can be stored")
        exponent = value.normalize(_WIDE).as_tuple().exponent
        assert isinstance(exponent, int)
        if -exponent > kind.scale or (value and value.adjusted() >= whole):
            raise BadValue(
                f"{value} does not fit {kind}: choose one with Annotated[Decimal, pa.decimal128(…)]"
            )
        return value

    return check


_WIDE = decimal.Context(prec=100)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadValue(f"{_shown(value)} is not valid text: {error.reason}") from error
    return str(value)


_PLAIN: dict[Any, FieldType] = {
    bool: FieldType(pa.bool_(), _taking(bool, "bool", _bool), quick=bool),
    int: FieldType(pa.int64(), _taking(int, "int", _int64), quick=int),
    float: FieldType(pa.float64(), _taking((float, int), "float", float), quick=float),
    str: FieldType(pa.string(), _taking(str, "str", _text), quick=str),
    bytes: FieldType(pa.binary(), _taking((bytes, bytearray, memoryview), "bytes", bytes), quick=bytes),
    dt.datetime: FieldType(TIMESTAMP, _taking(dt.datetime, "datetime", _instant), quick=dt.datetime),
    dt.date: FieldType(pa.date32(), _taking(dt.date, "date", _date)),
    dt.time: FieldType(pa.time64("us"), _taking(dt.time, "time", _time)),
    dt.timedelta: FieldType(pa.duration("us"), _taking(dt.timedelta, "timedelta", lambda value: value)),
    decimal.Decimal: FieldType(_DECIMAL, _taking(decimal.Decimal, "Decimal", _decimal(_DECIMAL))),
    uuid.UUID: FieldType(
        pa.binary(16), _taking(uuid.UUID, "UUID", lambda value: value.bytes), lambda raw: uuid.UUID(bytes=raw)
    ),
}


def _narrowed(annotation: Any, arrow: pa.DataType, where: str) -> FieldType:
    """A plain type stored as another Arrow type: every value is tried."""
    if annotation is decimal.Decimal and pa.types.is_decimal(arrow):
        return FieldType(arrow, _taking(decimal.Decimal, "Decimal", _decimal(arrow)))
    first = _PLAIN[annotation].to_plain

    def to_plain(value: Any) -> Any:
        value = first(value)
        try:
            pa.scalar(value, arrow)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise BadValue(f"{_shown(value)} does not fit {arrow}") from error
        return value

    return FieldType(arrow, to_plain, _PLAIN[annotation].from_plain)


# --- choices


def _enum(kind: type[enum.Enum], where: str) -> FieldType:
    values = {member: member.value for member in kind}
    if not _all_of(str, values.values()) and not _all_of(int, values.values()):
        values = {member: member.name for member in kind}
    return _choice(values, where)


def _choice(values: dict[Any, Any], where: str) -> FieldType:
    plain = {_key(value): stored for value, stored in values.items()}
    back = {stored: value for value, stored in values.items()}
    if _all_of(str, back):
        arrow = pa.string()
    elif _all_of(int, back):
        arrow = pa.int64()
    else:
        raise SchemaMismatch(f"{where}: the choices must be all strings or all integers")

    def to_plain(value: Any) -> Any:
        try:
            return plain[_key(value)]
        except (KeyError, TypeError):
            raise BadValue(f"expected one of {list(values)}, got {_shown(value)}") from None

    return FieldType(arrow, to_plain, back.__getitem__)


def _key(value: Any) -> Any:
    return type(value), value


def _all_of(kind: type, values: typing.Iterable[Any]) -> bool:
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


# --- values made of values


def _container(annotation: Any, where: str) -> FieldType:
    from headrace.stream.record import is_record, record_type

    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (list, set, frozenset) and arguments:
        return _sequence(origin, field_type(arguments[0], where))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(tuple, field_type(arguments[0], where))
    if origin is dict and len(arguments) == 2:
        return _mapping(field_type(arguments[0], where), field_type(arguments[1], where))
    if is_record(annotation):
        return record_type([annotation], where)
    raise SchemaMismatch(
        f"{where}: {annotation!r} is not a type that a stream can hold (see docs/guide/streams.md)"
    )


def _sequence(kind: Any, item: FieldType) -> FieldType:
    def to_plain(value: Any) -> Any:
        if not isinstance(value, kind):
            raise BadValue(f"expected {kind.__name__}, got {_shown(value)}")
        return [item.to_plain(each) for each in value]

    def from_plain(value: Any) -> Any:
        return kind(value if item.from_plain is None else map(item.from_plain, value))

    return FieldType(pa.list_(pa.field("item", item.arrow, item.nullable)), to_plain, from_plain)


def _mapping(key: FieldType, item: FieldType) -> FieldType:
    def to_plain(value: Any) -> Any:
        if not isinstance(value, dict):
            raise BadValue(f"expected dict, got {_shown(value)}")
        return [(key.to_plain(k), item.to_plain(v)) for k, v in value.items()]

    def from_plain(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value
        return {
            k if key.from_plain is None else key.from_plain(k): v
            if item.from_plain is None
            else item.from_plain(v)
            for k, v in pairs
        }

    return FieldType(pa.map_(key.arrow, pa.field("value", item.arrow, item.nullable)), to_plain, from_plain)


def _union(arguments: tuple[Any, ...], where: str) -> FieldType:
    from headrace.stream.record import is_record, record_type

    some = [argument for argument in arguments if argument is not type(None)]
    if len(some) == 1:
        made = field_type(some[0], where)
    elif all(is_record(argument) for argument in some):
        made = record_type(some, where)
    else:
        raise SchemaMismatch(f"{where}: a union is of dataclasses or Structs, or of one type and None")
    return made.optional() if len(some) < len(arguments) else made


def arrow_field_type(field: pa.Field) -> FieldType:
    """How values of an Arrow field are checked when there is no Python type: pyarrow tries each."""
    quick = next((kind for kind, made in _PLAIN.items() if made.quick and made.arrow == field.type), None)

    def to_plain(value: Any) -> Any:
        if value is None and not field.nullable:
            raise BadValue("it may not be missing or None")
        try:
            pa.scalar(value, field.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise BadValue(f"expected {field.type}, got {_shown(value)}") from error
        return value

    return FieldType(field.type, to_plain, quick=quick, nullable=field.nullable)
