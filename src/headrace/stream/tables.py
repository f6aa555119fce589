"""Tables: what people give to `publish_batch`, as batches of a stream's schema.

Anything that speaks Arrow is taken without copying: Arrow tables, batches and readers, polars, DuckDB and
pandas frames. Columns are found by name; one that may be null can be left out; one of another type is cast
if no value changes by that.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch
from headrace.stream.declaration import KEY, Declaration


def as_batches(table: Any, schema: pa.Schema, declaration: Declaration) -> list[pa.RecordBatch]:
    """The batches of `table` in `schema`, or SchemaMismatch saying which column does not fit."""
    whole = _as_table(table)
    given = set(whole.column_names)
    if unknown := given - set(schema.names):
        raise SchemaMismatch(
            f"the stream has no field {sorted(unknown)[0]!r}: it has {', '.join(schema.names)}"
        )
    if declaration.key_function is not None and KEY not in given:
        raise SchemaMismatch(f"the order key is computed: give it as the column {KEY!r} of the batch")
    columns = [_column(whole, field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema).to_batches()  # type: ignore[no-any-return]


def _as_table(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__"):
        return pa.table(table)
    if type(table).__module__.startswith("pandas."):
        return pa.Table.from_pandas(table, preserve_index=False)
    if isinstance(table, list) and all(isinstance(row, dict) for row in table):
        return pa.Table.from_pylist(table)
    raise SchemaMismatch(f"publish_batch takes Arrow, pandas or polars tables, not {type(table).__name__}")


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if not field.nullable:
            raise SchemaMismatch(f"the field {field.name!r} ({field.type}) is missing in the batch")
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"the field {field.name!r} is {field.type}, and {column.type} does not fit it: {error}"
            ) from error
    if not field.nullable and column.null_count:
        raise SchemaMismatch(f"the field {field.name!r} may not be null, and is in {column.null_count} rows")
    return column
