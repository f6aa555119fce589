"""Types: a stream's Arrow columns as Spark sees them.

Spark takes Arrow batches only if they have exactly the schema it expects, nullability included, and knows
fewer types than Arrow. So each stored type has one Spark type that holds all its values, and one cast there:

    signed integers, floats, bool, date, decimal up to 38 digits, text, bytes       as they are
    unsigned integers                   the next larger signed one; 64 bits become decimal(20, 0)
    float16                             float
    timestamps with / without a zone    timestamp (UTC) / timestamp_ntz, in microseconds
    time of day                         bigint: microseconds since midnight
    duration                            interval day to second
    fixed-size bytes, large and view types                                          the plain type
    structs, lists and maps of these                                                the same of those
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.kernel.errors import SchemaMismatch

_PLAIN: dict[pa.DataType, st.DataType] = {
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.uint8(): st.ShortType(),
    pa.uint16(): st.IntegerType(),
    pa.uint32(): st.LongType(),
    pa.uint64(): st.DecimalType(20, 0),
    pa.float16(): st.FloatType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.string(): st.StringType(),
    pa.large_string(): st.StringType(),
    pa.string_view(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.large_binary(): st.BinaryType(),
    pa.binary_view(): st.BinaryType(),
    pa.date32(): st.DateType(),
    pa.date64(): st.DateType(),
    pa.null(): st.NullType(),
}


def spark_schema(schema: pa.Schema) -> st.StructType:
    """The Spark schema in which a stream's columns are shown."""
    return st.StructType(
        [st.StructField(field.name, spark_type(field.type, field.name), field.nullable) for field in schema]
    )


def spark_type(kind: pa.DataType, where: str) -> st.DataType:
    if kind in _PLAIN:
        return _PLAIN[kind]
    checks = pa.types
    if checks.is_fixed_size_binary(kind):
        return st.BinaryType()
    if checks.is_timestamp(kind):
        return st.TimestampType() if kind.tz else st.TimestampNTZType()
    if checks.is_time(kind):
        return st.LongType()
    if checks.is_duration(kind):
        return st.DayTimeIntervalType()
    if checks.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return st.DecimalType(kind.precision, kind.scale)
    if checks.is_struct(kind):
        return spark_schema(pa.schema(list(kind)))
    if checks.is_map(kind):
        key, value = spark_type(kind.key_type, where), spark_type(kind.item_type, where)
        return st.MapType(key, value, kind.item_field.nullable)
    if checks.is_list(kind) or checks.is_large_list(kind) or checks.is_fixed_size_list(kind):
        return st.ArrayType(spark_type(kind.value_type, where), kind.value_field.nullable)
    raise SchemaMismatch(
        f"the field {where!r} is a {kind}, which Spark has no type for: leave it out by option 'columns'"
    )


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """The Arrow schema that Spark expects for its own."""
    return to_arrow_schema(schema, timezone="UTC")


def stored_schema(schema: st.StructType) -> pa.Schema:
    """The schema of a stream that is created to hold what Spark gives."""
    return pa.schema([pa.field(f.name, _plain_names(f.type), f.nullable) for f in arrow_schema(schema)])


def _plain_names(kind: pa.DataType) -> pa.DataType:
    """The same type with the names that headrace gives to the inside of lists and maps."""
    if pa.types.is_list(kind):
        inside = kind.value_field
        return pa.list_(pa.field("item", _plain_names(inside.type), inside.nullable))
    if pa.types.is_map(kind):
        item = kind.item_field
        return pa.map_(_plain_names(kind.key_type), pa.field("value", _plain_names(item.type), item.nullable))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain_names(f.type), f.nullable) for f in kind])
    return kind


def as_spark(columns: Sequence[pa.Array], target: pa.Schema) -> pa.RecordBatch:
    """Columns as a batch of exactly the schema that Spark expects."""
    made = []
    for column, field in zip(columns, target, strict=True):
        if not field.nullable and column.null_count:
            raise SchemaMismatch(
                f"the field {field.name!r} has nulls, and the schema given to Spark says that it has none"
            )
        made.append(column if column.type.equals(field.type) else _cast(column, field))
    return pa.RecordBatch.from_arrays(made, schema=target)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The same type with every time of day, at any depth, counted in microseconds."""
    checks = pa.types
    if checks.is_time(kind):
        return pa.time64("us")
    if checks.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if checks.is_map(kind):
        item = kind.item_field.with_type(_in_microseconds(kind.item_type))
        return pa.map_(_in_microseconds(kind.key_type), item)
    if checks.is_list(kind) or checks.is_large_list(kind) or checks.is_fixed_size_list(kind):
        inside = kind.value_field.with_type(_in_microseconds(kind.value_type))
        if checks.is_fixed_size_list(kind):
            return pa.list_(inside, kind.list_size)
        return pa.large_list(inside) if checks.is_large_list(kind) else pa.list_(inside)
    return kind


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(_in_microseconds(column.type)).cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            f"the field {field.name!r} is a {column.type}, which cannot be read as {field.type}: {error}"
        ) from error
