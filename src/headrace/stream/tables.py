"""Tables: what people give to `publish_batch`, as one table of a stream's schema.

Anything that speaks Arrow is taken without copying: Arrow tables, batches and readers, polars, DuckDB and
pandas frames; and lists of dicts. Columns are found by name; one that may be null can be left out; one of a
like type (another width, another unit) is cast if no value changes by that.

What `publish` would refuse is refused here too, by the column: values that no enum has, nulls inside lists,
variants that are not known or lack a field, times outside Python's years. So whatever is in a stream can be
given back as the declared type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.errors import SchemaMismatch
from headrace.stream.columns import from_array, to_array
from headrace.stream.declaration import KEY, Declaration
from headrace.stream.errors import BadEntry, UnknownVariant
from headrace.stream.field import BadValue, FieldType
from headrace.stream.record import TAG

_TYPES = pa.types
_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "integer": (_TYPES.is_integer,),
    "float": (_TYPES.is_floating,),
    "decimal": (_TYPES.is_decimal,),
    "text": (_TYPES.is_string, _TYPES.is_large_string, _TYPES.is_string_view),
    "bytes": (
        _TYPES.is_binary,
        _TYPES.is_large_binary,
        _TYPES.is_binary_view,
        _TYPES.is_fixed_size_binary,
    ),
    "time": (_TYPES.is_temporal,),
    "nested": (_TYPES.is_nested,),
}
_CASTS = {*((kind, kind) for kind in _KINDS), ("integer", "float"), ("integer", "decimal")}


def as_table(given: Any, schema: pa.Schema, declaration: Declaration) -> pa.Table:
    """What was given, in `schema`; or SchemaMismatch / BadEntry saying which column or row does not fit."""
    if isinstance(given, list) and all(isinstance(row, dict) for row in given):
        return _from_rows(given, schema, declaration)
    table = _arrow_table(given)
    if unknown := sorted(set(table.column_names) - set(schema.names)):
        raise SchemaMismatch(f"the stream has no field {unknown[0]!r}: it has {', '.join(schema.names)}")
    if declaration.key_function is not None and KEY not in table.column_names:
        raise SchemaMismatch(f"the order key is computed: give it as the column {KEY!r} of the batch")
    columns = [_column(table, field) for field in schema]
    made = pa.Table.from_arrays(columns, schema=schema)
    _check_values(made, declaration)
    return made


def _arrow_table(given: Any) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.RecordBatchReader):
        return given.read_all()
    if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        return pa.table(given)
    if type(given).__module__.startswith("pandas."):
        return pa.Table.from_pandas(given, preserve_index=False)
    raise SchemaMismatch(f"publish_batch takes Arrow, pandas or polars tables, not {type(given).__name__}")


def _from_rows(rows: Sequence[dict[str, Any]], schema: pa.Schema, declaration: Declaration) -> pa.Table:
    """Dicts, each value checked as `publish` does."""
    names = set(schema.names)
    for number, row in enumerate(rows):
        if not row.keys() <= names:
            unknown = sorted(str(name) for name in row.keys() - names)
            raise BadEntry(f"row {number}: the stream has no field {unknown[0]!r}")
    columns = []
    for field in schema:
        kind = declaration.columns.get(field.name)
        if kind is None:
            columns.append(pa.nulls(len(rows), field.type))
            continue
        values = []
        for number, row in enumerate(rows):
            try:
                values.append(kind.to_plain(row.get(field.name)))
            except BadValue as error:
                raise BadEntry(f"row {number}: field {field.name!r}: {error}") from None
        columns.append(to_array(values, kind))
    table = pa.Table.from_arrays(columns, schema=schema)
    _check_values(table, declaration)
    return table


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if not field.nullable:
            raise SchemaMismatch(f"the field {field.name!r} ({field.type}) is missing in the batch")
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type != field.type:
        if not pa.types.is_null(column.type) and not _alike(column.type, field.type):
            raise SchemaMismatch(f"the field {field.name!r} is {field.type}; the batch has {column.type}")
        try:
            column = column.cast(field.type)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"the field {field.name!r} is {field.type}, and {column.type} does not fit it: {error}"
            ) from error
    if not field.nullable and column.null_count:
        raise SchemaMismatch(f"the field {field.name!r} may not be null, and is in {column.null_count} rows")
    return column


def _alike(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type may be cast to the other: a number never becomes text, say."""
    return any((a, b) in _CASTS for a in _kinds(given) for b in _kinds(wanted))


def _kinds(kind: pa.DataType) -> list[str]:
    return [name for name, tests in _KINDS.items() if any(test(kind) for test in tests)]


def _check_values(table: pa.Table, declaration: Declaration) -> None:
    for name, kind in declaration.columns.items():
        column = table.column(name)
        if not declaration.polymorphic:
            _check_choices(name, column, kind)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            _check_years(name, column)
        if pa.types.is_nested(column.type) and declaration.variants:
            for chunk in column.chunks:
                _check_nested(name, chunk)
    if declaration.polymorphic:
        _check_variants(table, declaration)


def _check_choices(name: str, column: pa.ChunkedArray, kind: FieldType) -> None:
    if kind.choices is not None:
        wrong = sorted(str(value) for value in set(pc.unique(column).to_pylist()) - kind.choices - {None})
        if wrong:
            raise BadEntry(f"field {name!r}: {wrong[0]!r} is not one of its values")
    if kind.choices_inside:
        for chunk in column.chunks:
            try:
                from_array(chunk, kind)
            except UnknownVariant as error:
                raise BadEntry(f"field {name!r}: {error}") from None


def _check_years(name: str, column: pa.ChunkedArray) -> None:
    span = pc.min_max(column)
    for bound in ("min", "max"):
        try:
            span[bound].as_py()
        except (ValueError, OverflowError) as error:
            raise BadEntry(f"field {name!r}: {error}: Python's years are 1 to 9999") from error


def _check_nested(name: str, array: pa.Array) -> None:
    """No nulls where the type says that there are none, at any depth."""
    kind = array.type
    if pa.types.is_struct(kind):
        children = [(kind.field(at), array.field(at)) for at in range(kind.num_fields)]
        valid = array.is_valid()
        children = [(field, child.filter(valid)) for field, child in children]
    elif pa.types.is_map(kind):
        children = [(kind.key_field, array.keys), (kind.item_field, array.items)]
    else:
        children = [(kind.value_field, array.flatten())]
    for field, child in children:
        if not field.nullable and child.null_count:
            raise BadEntry(f"field {name!r}: {field.name!r} inside it may not be null")
        if pa.types.is_nested(field.type):
            _check_nested(name, child)


def _check_variants(table: pa.Table, declaration: Declaration) -> None:
    tags = table.column(TAG)
    for tag in pc.unique(tags).to_pylist():
        variant = declaration.variant(tag)
        if variant is None:
            if not declaration.variants:
                continue  # opened by name: the classes are not known here
            raise BadEntry(f"field {TAG!r}: {tag!r} is not a class of this stream")
        rows = table.filter(pc.equal(tags, tag))
        for name, kind in variant.fields.items():
            if not kind.nullable and rows.column(name).null_count:
                raise BadEntry(f"field {name!r} may not be null in a {tag}")
            _check_choices(name, rows.column(name), kind)
