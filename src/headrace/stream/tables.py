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
from headrace.stream.evolve import through
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
    "list": (
        _TYPES.is_list,
        _TYPES.is_large_list,
        _TYPES.is_list_view,
        _TYPES.is_large_list_view,
        _TYPES.is_fixed_size_list,
    ),
    "map": (_TYPES.is_map,),
    "record": (_TYPES.is_struct,),
}
_CASTS = {*((kind, kind) for kind in _KINDS), ("integer", "float"), ("integer", "decimal")}


def as_table(given: Any, schema: pa.Schema, declaration: Declaration) -> pa.Table:
    """What was given, in `schema`; or SchemaMismatch / BadEntry saying which column or row does not fit."""
    if isinstance(given, list) and all(isinstance(row, dict) for row in given):
        return _from_rows(given, schema, declaration)
    table = _arrow_table(given)
    if unknown := sorted(set(table.column_names) - set(schema.names)):
        raise SchemaMismatch(f"the stream has no field {unknown[0]!r}: it has {', '.join(schema.names)}")
    if twice := [name for name in schema.names if table.column_names.count(name) > 1]:
        raise SchemaMismatch(f"the batch has two columns {twice[0]!r}")
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
    kind = type(given)
    try:
        if kind.__module__.partition(".")[0] == "pandas":  # before the next: that would bring its index along
            return pa.Table.from_pandas(given, preserve_index=False)
        if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
            return pa.table(given)
    except (pa.ArrowException, ValueError, AttributeError) as error:
        raise SchemaMismatch(f"this {kind.__name__} is not a table of columns: {error}") from error
    raise SchemaMismatch(f"publish_batch takes Arrow, pandas or polars tables, not {kind.__name__}")


def _from_rows(rows: Sequence[dict[str, Any]], schema: pa.Schema, declaration: Declaration) -> pa.Table:
    """Dicts, each value checked as `publish` does."""
    names = declaration.columns.keys()
    for number, row in enumerate(rows):
        if not row.keys() <= names:
            unknown = sorted(str(name) for name in row.keys() - names)
            raise BadEntry(f"row {number}: the stream has no field {unknown[0]!r}")
    columns = []
    for name, kind in declaration.columns.items():
        values = []
        for number, row in enumerate(rows):
            try:
                values.append(kind.to_plain(row.get(name)))
            except BadValue as error:
                raise BadEntry(f"row {number}: field {name!r}: {error}") from None
        columns.append(to_array(values, kind))
    records = pa.RecordBatch.from_arrays(columns, schema=declaration.schema)
    table = pa.Table.from_batches([through(records, schema)])
    _check_values(table, declaration)
    return table


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if not field.nullable:
            raise SchemaMismatch(f"the field {field.name!r} ({field.type}) is missing in the batch")
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if column.type != field.type:
        _check_alike(column.type, field.type, field.name)
        try:
            if _TYPES.is_dictionary(column.type):  # its values first: pyarrow cannot decode those of polars
                column = column.cast(pa.dictionary(column.type.index_type, field.type))
            column = column.cast(field.type)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"the field {field.name!r} is {field.type}, and {column.type} does not fit it: {error}"
            ) from error
    if not field.nullable and column.null_count:
        raise SchemaMismatch(f"the field {field.name!r} may not be null, and is in {column.null_count} rows")
    return column


def _check_alike(given: pa.DataType, wanted: pa.DataType, path: str) -> None:
    """Refuse what a cast would do too much for: make text of a number, say, or leave a field out."""
    if _TYPES.is_dictionary(given):
        given = given.value_type
    if given == wanted or _TYPES.is_null(given):
        return
    kinds = _kind(given), _kind(wanted)
    if kinds not in _CASTS:
        raise SchemaMismatch(f"the field {path!r} is {wanted}; the batch has {given}")
    if kinds == ("list", "list"):
        _check_alike(given.value_type, wanted.value_type, path)
    elif kinds == ("map", "map"):
        _check_alike(given.key_type, wanted.key_type, path)
        _check_alike(given.item_type, wanted.item_type, path)
    elif kinds == ("record", "record"):
        known = {field.name: field.type for field in wanted}
        for field in given:
            if field.name not in known:
                raise SchemaMismatch(f"the field {path!r} is {wanted}: it has no {field.name!r}")
            _check_alike(field.type, known[field.name], f"{path}.{field.name}")


def _kind(arrow: pa.DataType) -> str:
    return next((name for name, tests in _KINDS.items() if any(test(arrow) for test in tests)), str(arrow))


def looks_inside(declaration: Declaration) -> bool:
    """Whether values can be wrong whose type is right: see `_check_values`."""
    return declaration.polymorphic or any(
        kind.has_choices or _TYPES.is_temporal(kind.arrow) or _TYPES.is_nested(kind.arrow)
        for kind in declaration.columns.values()
    )


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
