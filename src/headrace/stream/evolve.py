"""Evolution: which changes of a stream's type are fine, and how old segments are read through the new one.

    fine       a new field that may be None; a new variant of a union; a field that this program does not
               know, if it may be null (it is written as null and not seen)
    not fine   anything else: a field that is gone and was required, of another type, no longer optional

Every segment carries the schema it was written with. Read through a newer schema, a field it does not have
is null. The stream's stored schema grows when the first publisher with a new field or variant opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch
from headrace.stream.declaration import Declaration
from headrace.stream.record import TAG


def check_evolution(stored: pa.Schema, declared: pa.Schema, stream: str) -> pa.Schema:
    """The schema that serves both, `stored` first; or SchemaMismatch saying which field and why."""
    merged = list(stored)
    for field in stored:
        at = declared.get_field_index(field.name)
        if at < 0:
            if not field.nullable:
                raise SchemaMismatch(
                    f"stream {stream!r}: the field {field.name!r} ({field.type}) is not in the declared type"
                )
            continue
        merged[stored.get_field_index(field.name)] = _merge(field, declared.field(at), f"stream {stream!r}")
    for field in declared:
        if stored.get_field_index(field.name) < 0:
            if field.name == TAG:
                raise SchemaMismatch(
                    f"stream {stream!r} holds one class, and its entries do not say which: it cannot become "
                    "a union; declare it as one from the start, or publish to a new stream"
                )
            if not field.nullable:
                raise SchemaMismatch(
                    f"stream {stream!r}: the new field {field.name!r} ({field.type}) must be optional: "
                    "entries that are there do not have it"
                )
            merged.append(field)
    return pa.schema(merged, metadata=stored.metadata)


def _merge(stored: pa.Field, declared: pa.Field, where: str) -> pa.Field:
    if stored.type != declared.type:
        raise SchemaMismatch(
            f"{where}: the field {stored.name!r} is {stored.type} in the stream and {declared.type} in the "
            "declared type: give the new one another name"
        )
    if stored.nullable and not declared.nullable:
        raise SchemaMismatch(
            f"{where}: the field {stored.name!r} may be None in the stream: declare it optional"
        )
    return declared  # if it was required, it may be missing from now on


def through(records: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of an older schema as one of `schema`: columns it does not have are null."""
    if records.schema.equals(schema):
        return records
    columns = []
    for field in schema:
        at = records.schema.get_field_index(field.name)
        if at >= 0 and records.schema.field(at).type != field.type:
            raise SchemaMismatch(
                f"the field {field.name!r} is {records.schema.field(at).type} in the stream, {field.type} in "
                "the declared type: another program gave it that type since"
            )
        columns.append(records.column(at) if at >= 0 else pa.nulls(records.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def declared_extra(declaration: Declaration) -> dict[str, list[str]]:
    """What each variant of a union requires: its columns are nullable, so the schema does not say."""
    return {
        variant.tag: sorted(name for name, kind in variant.fields.items() if not kind.nullable)
        for variant in declaration.variants
    }


def grown_extra(extra: Mapping[str, Any], declaration: Declaration, stream: str) -> dict[str, Any]:
    """The stream's stored words with the variants that are new; or SchemaMismatch if an old one changed."""
    stored = extra.get("stream", {})
    required = dict(stored.get("required", {}))
    for tag, names in declared_extra(declaration).items():
        if declaration.polymorphic and (new := sorted(set(names) - set(required.get(tag, names)))):
            raise SchemaMismatch(
                f"stream {stream!r}: {tag}.{new[0]} must be optional: entries that are there may not have it"
            )
        required.setdefault(tag, names)
    return {**extra, "stream": {**stored, "required": required}}
