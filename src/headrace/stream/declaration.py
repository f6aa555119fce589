"""Declarations: what the entries of a stream are, and the columns they are stored in.

    a dataclass or msgspec.Struct      entries are its objects; a column for each field
    A | B, of either                   entries are objects of one of them; `_type` says which
    bytes                              entries are bytes; one column, `data`
    a pyarrow.Schema, or nothing       entries are dicts; the columns are the schema's

With an order key computed by a function there is one more column, `_key`.
"""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

import pyarrow as pa

from headrace.kernel.errors import BadSettings, SchemaMismatch
from headrace.kernel.limits import FIELDS_MAX
from headrace.stream.field import FieldType
from headrace.stream.plain import TIMESTAMP, arrow_field_type, check_zones
from headrace.stream.record import TAG, Variant, check_tags, is_record, merged_fields, variant_of
from headrace.stream.types import field_type

KEY = "_key"
DATA = "data"
_KEY_TYPES = {int: pa.int64(), float: pa.float64(), dt.datetime: TIMESTAMP}


@dataclass(frozen=True, slots=True)
class Declaration:
    """`variants` is empty when entries are dicts or bytes."""

    variants: tuple[Variant, ...]
    columns: dict[str, FieldType]
    schema: pa.Schema
    order_by: str | None = None
    key_function: Callable[[Any], Any] | None = None
    raw: bool = False

    @property
    def polymorphic(self) -> bool:
        return TAG in self.columns

    def variant(self, tag: str) -> Variant | None:
        return next((variant for variant in self.variants if variant.tag == tag), None)


def declare(
    kind: Any, order_by: str | Callable[[Any], Any] | None = None, *, stored: bool = False
) -> Declaration:
    """The declaration of a stream by its type, or SchemaMismatch saying what cannot be stored.

    `stored` tells that the schema is that of a stream, which may have columns of headrace's own.
    """
    variants: tuple[Variant, ...] = ()
    if kind is bytes:
        columns = {DATA: field_type(bytes, DATA)}
    elif isinstance(kind, pa.Schema):
        _check_names(kind, stored)
        columns = {field.name: arrow_field_type(field) for field in kind}
    else:
        variants = _variants(kind)
        columns = merged_fields(variants)
    if len(variants) > 1:
        columns = {TAG: field_type(str, TAG), **columns}
    order_by, function = (order_by, None) if not callable(order_by) else (KEY, order_by)
    if function is not None:
        columns = {**columns, KEY: _key_type(function)}
    if order_by is not None:
        if order_by not in columns:
            raise BadSettings(f"order_by names {order_by!r}, which is not a field of {_named(kind)}")
        if function is None:
            columns[order_by] = _key_column(columns[order_by], order_by, variants)
        columns[order_by] = columns[order_by].required("the order key")
    fields = [pa.field(name, column.arrow, column.nullable) for name, column in columns.items()]
    schema = kind if isinstance(kind, pa.Schema) and function is None else pa.schema(fields)
    return Declaration(variants, columns, schema, order_by, function, raw=kind is bytes)


def _variants(kind: Any) -> tuple[Variant, ...]:
    classes = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    for cls in classes:
        if not is_record(cls):
            raise SchemaMismatch(
                f"a stream holds dataclasses, msgspec Structs, unions of them, bytes, or rows of an Arrow "
                f"schema; {_named(cls)} is none of these"
            )
    variants = tuple(variant_of(cls) for cls in classes)
    check_tags(variants)
    return variants


def _check_names(schema: pa.Schema, stored: bool) -> None:
    if len(schema) > FIELDS_MAX:
        raise SchemaMismatch(f"the schema has {len(schema)} fields; {FIELDS_MAX} are allowed")
    names = set[str]()
    for field in schema:
        name = field.name
        if name in names:
            raise SchemaMismatch(f"the schema has two fields {name!r}")
        names.add(name)
        if name.startswith("_") and not stored:
            raise SchemaMismatch(f"the field {name!r}: names that begin with '_' are headrace's own")
        if getattr(field.type, "unit", None) == "ns":
            raise SchemaMismatch(
                f"the field {name!r} counts nanoseconds, which Python's times do not: take 'us'"
            )
        if not stored:
            check_zones(field.type, f"the field {name!r}")


def _key_column(column: FieldType, name: str, variants: Sequence[Variant]) -> FieldType:
    """The order key's column: every entry has it, so it is not nullable, even in a union."""
    for variant in variants:
        if name not in variant.fields or variant.fields[name].nullable:
            raise BadSettings(f"order_by names {name!r}, which {variant.tag} does not always have")
    if not variants:
        return column
    return variants[0].fields[name]


def _key_type(function: Callable[[Any], Any]) -> FieldType:
    """An order key function says by its return annotation what it gives; int if it does not say."""
    hint = getattr(function, "__annotations__", {}).get("return", int)
    hint = {"int": int, "float": float, "datetime": dt.datetime, "dt.datetime": dt.datetime}.get(hint, hint)
    if hint not in _KEY_TYPES:
        raise BadSettings(f"an order key function returns int, float or datetime, not {hint!r}")
    return field_type(hint, KEY)


def _named(kind: Any) -> str:
    return getattr(kind, "__name__", repr(kind))
