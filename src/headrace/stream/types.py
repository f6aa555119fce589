"""Types: how one field of an entry is stored, by its Python annotation.

    int float bool str bytes          int64 double bool string binary
    datetime (with a zone)            timestamp[us, UTC]: the instant is kept, and comes back in UTC
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
from collections.abc import Hashable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch
from headrace.stream.errors import UnknownVariant
from headrace.stream.field import BadValue, FieldType, shown
from headrace.stream.plain import PLAIN, check_zones, fitting_decimal, instant, taking


def field_type(annotation: Any, where: str) -> FieldType:
    """How values of this annotation are stored, or SchemaMismatch saying what is not supported."""
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        arrow = next((note for note in notes if isinstance(note, pa.DataType)), None)
        return field_type(annotation, where) if arrow is None else _narrowed(annotation, arrow, where)
    if isinstance(annotation, typing.NewType):
        return field_type(annotation.__supertype__, where)
    if isinstance(annotation, Hashable) and annotation in PLAIN:
        return PLAIN[annotation]
    if get_origin(annotation) in (Union, types.UnionType):
        return _union(get_args(annotation), where)
    if get_origin(annotation) is Literal:
        return _choice({value: value for value in get_args(annotation)}, where)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum(annotation, where)
    return _container(annotation, where)


def _narrowed(annotation: Any, arrow: pa.DataType, where: str) -> FieldType:
    """A plain type stored as another Arrow type: each value must come back as it was."""
    if get_origin(annotation) in (Union, types.UnionType):
        some = [argument for argument in get_args(annotation) if argument is not type(None)]
        if len(some) == 1:
            return _narrowed(some[0], arrow, where).optional()
    if annotation not in PLAIN:
        raise SchemaMismatch(f"{where}: an Arrow type can be chosen for plain values, not for {annotation!r}")
    if annotation is decimal.Decimal and pa.types.is_decimal(arrow):
        return FieldType(arrow, taking(decimal.Decimal, "Decimal", fitting_decimal(arrow)))

    if not _kindred(PLAIN[annotation].arrow, arrow):
        raise SchemaMismatch(f"{where}: {annotation.__name__} cannot be stored as {arrow}")
    check_zones(arrow, where)

    def to_plain(value: Any) -> Any:
        if isinstance(value, dt.datetime):
            value = instant(value)
        try:
            kept = pa.scalar(value, arrow).as_py()
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise BadValue(f"{shown(value)} does not fit {arrow}") from error
        if kept != value or not isinstance(value, annotation):
            raise BadValue(f"{shown(value)} would come back from {arrow} as {kept!r}")
        return value

    return FieldType(arrow, to_plain, PLAIN[annotation].from_plain)


def _kindred(usual: pa.DataType, chosen: pa.DataType) -> bool:
    """Whether the chosen Arrow type is of the kind that the annotation is usually stored as."""
    kinds = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_temporal,
        pa.types.is_boolean,
        lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
        lambda kind: (
            pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        ),
    )
    return any(kind(usual) and kind(chosen) for kind in kinds)


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
    elif _all_of(int, back) and all(-(1 << 63) <= value < 1 << 63 for value in back):
        arrow = pa.int64()
    else:
        raise SchemaMismatch(f"{where}: the choices must be all strings or all integers of 64 bits")

    def to_plain(value: Any) -> Any:
        try:
            return plain[_key(value)]
        except (KeyError, TypeError):
            raise BadValue(f"expected one of {list(values)}, got {shown(value)}") from None

    def from_plain(stored: Any) -> Any:
        try:
            return back[stored]
        except KeyError:
            raise UnknownVariant(
                f"{where}: the stream has {stored!r}, which this program does not know"
            ) from None

    return FieldType(arrow, to_plain, from_plain, choices=frozenset(back))


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
        return _mapping(field_type(arguments[0], where), field_type(arguments[1], where), where)
    if is_record(annotation):
        return record_type([annotation], where)
    raise SchemaMismatch(
        f"{where}: {annotation!r} is not a type that a stream can hold (see docs/guide/streams.md)"
    )


def _sequence(kind: Any, item: FieldType) -> FieldType:
    def to_plain(value: Any) -> Any:
        if not isinstance(value, kind):
            raise BadValue(f"expected {kind.__name__}, got {shown(value)}")
        return [item.to_plain(each) for each in value]

    def from_plain(value: Any) -> Any:
        return kind(value if item.from_plain is None else map(item.from_plain, value))

    arrow = pa.list_(pa.field("item", item.arrow, item.nullable))
    return FieldType(arrow, to_plain, from_plain, choices_inside=item.has_choices, requires=item.requires)


def _mapping(key: FieldType, item: FieldType, where: str) -> FieldType:
    if key.nullable:
        raise SchemaMismatch(f"{where}: the keys of a dict cannot be None")

    def to_plain(value: Any) -> Any:
        if not isinstance(value, dict):
            raise BadValue(f"expected dict, got {shown(value)}")
        return [(key.to_plain(k), item.to_plain(v)) for k, v in value.items()]

    def from_plain(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value
        return {
            k if key.from_plain is None else key.from_plain(k): v
            if item.from_plain is None
            else item.from_plain(v)
            for k, v in pairs
        }

    arrow = pa.map_(key.arrow, pa.field("value", item.arrow, item.nullable))
    inside = key.has_choices or item.has_choices
    requires = {**key.requires, **item.requires}
    return FieldType(arrow, to_plain, from_plain, choices_inside=inside, requires=requires)


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
