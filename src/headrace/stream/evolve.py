"""Evolution: which changes of a stream's type are fine, and how old segments are read through the new one.

    fine       a new field that may be None; a field that may be None from now on; a field that this program
               does not know, if it may be null (it is written as null and not seen); a new variant of a
               union; one class that becomes a union
    not fine   anything else: a field that is gone and was required, of another type, no longer optional

The same holds for records inside: in a field, a list, the values of a map. The keys of a map stay as they
are, or two of them could become one to a program that does not see what tells them apart.

Every segment carries the schema it was written with. Read through a newer schema, a field it does not have
is null; and `_type`, if the stream became a union later, is the class that the stream held until then. The
stream's stored schema grows when the first publisher with a new field or variant opens it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch
from headrace.log.meta import Meta
from headrace.stream.declaration import Declaration
from headrace.stream.record import TAG
from headrace.stream.required import class_until_now

UNTIL_NOW = b"headrace.until_now"
"""In the metadata of a field: what entries have in segments that are older than the field."""


def check_evolution(meta: Meta, declaration: Declaration, stream: str) -> pa.Schema:
    """The schema that serves both, the stored one first; or SchemaMismatch saying which field and why."""
    stored, declared = meta.schema, declaration.schema
    if stored.equals(declared):
        return stored
    if TAG in stored.names and TAG not in declared.names:
        raise SchemaMismatch(f"stream {stream!r} holds a union: declare it as one, with all that it holds")
    if TAG in declared.names and TAG not in stored.names:
        stored = stored.append(_tag_field(class_until_now(meta, declaration, stream)))
    try:
        return pa.schema(_merge_fields(stored, declared), metadata=stored.metadata)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"stream {stream!r}: {error}") from None


def check_grown(stored: pa.Schema, grown: pa.Schema, stream: str) -> None:
    """Refuse a schema that is not the stored one with what may be added to it."""
    new = pa.schema([field for field in grown if not (field.metadata or {}).get(UNTIL_NOW)])
    try:
        merged = _merge_fields(stored, new if TAG not in stored.names else grown)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"stream {stream!r}: {error}") from None
    if {field.name for field in merged} - set(grown.names):
        raise SchemaMismatch(f"stream {stream!r} does not lose fields by growing")


def through(records: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of an older schema, or of a newer one, as one of `schema`."""
    if records.schema.equals(schema):
        return records
    columns = [_column(records, field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def check_still_one_class(records: pa.RecordBatch) -> None:
    """Refuse entries of a union where those of one class are expected: they may be of another."""
    if records.schema.get_field_index(TAG) >= 0:
        raise SchemaMismatch("the stream became a union since it was opened here: open it again as one")


# --- one schema that serves both


def _merge_fields(
    stored: Iterable[pa.Field], declared: Iterable[pa.Field], inside: str = ""
) -> list[pa.Field]:
    """The fields of both. `inside` is the path of the record that they are fields of, with a dot behind."""
    missing = {field.name: field for field in declared}
    merged = []
    for field in stored:
        other, path = missing.pop(field.name, None), inside + field.name
        if other is not None:
            merged.append(_merge(field, other, path))
        elif field.nullable:
            merged.append(field)
        else:
            raise SchemaMismatch(f"the field {path!r} ({field.type}) is not in the declared type")
    for field in missing.values():
        if not field.nullable:
            raise SchemaMismatch(
                f"the new field {inside + field.name!r} ({field.type}) must be optional: "
                "entries that are there do not have it"
            )
        merged.append(field)
    return merged


def _merge(stored: pa.Field, declared: pa.Field, path: str) -> pa.Field:
    kind = _merge_type(stored.type, declared.type, path)
    if stored.nullable and not declared.nullable:
        raise SchemaMismatch(f"the field {path!r} may be None in the stream: declare it optional")
    return stored.with_type(kind).with_nullable(declared.nullable)


def _merge_type(stored: pa.DataType, declared: pa.DataType, path: str) -> pa.DataType:
    types = pa.types
    if stored == declared:
        return stored
    if types.is_struct(stored) and types.is_struct(declared):
        return pa.struct(_merge_fields(stored, declared, path + "."))
    if types.is_list(stored) and types.is_list(declared):
        old, new = stored.value_field, declared.value_field
        if old.nullable == new.nullable:
            return pa.list_(old.with_type(_merge_type(old.type, new.type, path)))
    if types.is_map(stored) and types.is_map(declared) and stored.key_type == declared.key_type:
        old, new = stored.item_field, declared.item_field
        if old.nullable == new.nullable:
            item = old.with_type(_merge_type(old.type, new.type, path))
            return pa.map_(stored.key_field, item, keys_sorted=stored.keys_sorted)
    raise SchemaMismatch(
        f"the field {path!r} is {stored} in the stream and {declared} in the declared type: "
        "give the new one another name"
    )


def _tag_field(until_now: str) -> pa.Field:
    """The new column `_type` of a stream that held one class until now."""
    return pa.field(TAG, pa.string(), nullable=False, metadata={UNTIL_NOW: until_now})


# --- one batch through another schema


def _column(records: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = records.schema.get_field_index(field.name)
    if at < 0:
        return _column_of_older(field, records.num_rows)
    written, column = records.schema.field(at), records.column(at)
    if written.equals(field):
        return column
    try:
        _merge(written, field, field.name)  # if that can be done, a cast only adds and leaves out fields
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"another program changed the stream since it was opened here: {error}"
        ) from None
    return column.cast(field.type)


def _column_of_older(field: pa.Field, rows: int) -> pa.Array:
    until_now = (field.metadata or {}).get(UNTIL_NOW)
    if until_now is None:
        return pa.nulls(rows, field.type)
    return pa.repeat(pa.scalar(until_now.decode(), field.type), rows)
