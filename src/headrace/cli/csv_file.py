"""CSV: rows of text as columns of a stream's types.

An empty cell is null, and "" is the empty string; where a string may not be null, both are empty. Bytes,
times of day, durations and nested values are in the form they have in JSON lines. Rows are counted after
the header.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from headrace.cli.counted import Counted
from headrace.cli.inferred import timely
from headrace.cli.rows import BLOCK_BYTES, BadInput, Rows
from headrace.kernel.errors import SchemaMismatch
from headrace.wire.casting import first_failing
from headrace.wire.json_lines import read_column

_SAMPLE_BYTES = 1 << 20


class CsvFile:
    unit = "row"

    def __init__(self, file: BinaryIO) -> None:
        self._source = Counted(file)
        self._done = 0
        self._wrong_row: Any = None

    def progress(self) -> tuple[int, int]:
        return self._source.done, self._source.size

    def schema(self) -> pa.Schema:
        sample = self._source.read(_SAMPLE_BYTES)
        self._source.put_back(sample)
        all_of_it = len(sample) < _SAMPLE_BYTES
        reader = self._open(io.BytesIO(sample), {}, len(sample) + 1 if all_of_it else _SAMPLE_BYTES // 2)
        first = next(iter(reader), None)
        if first is None:
            raise BadInput("there is no row to infer the fields from")
        return pa.schema(
            [pa.field(one.name, _inferred(first.column(at))) for at, one in enumerate(first.schema)]
        )

    def rows(self, schema: pa.Schema) -> Iterator[Rows]:
        texts = {name: pa.string() for name in schema.names}
        reader = self._open(self._source, texts, BLOCK_BYTES)
        _check_header(reader.schema.names, schema)
        while (batch := self._next(reader)) is not None:
            numbers = range(self._done + 1, self._done + batch.num_rows + 1)
            self._done += batch.num_rows
            if batch.num_rows:
                columns = [_column(batch, field, numbers) for field in schema]
                yield Rows(pa.RecordBatch.from_arrays(columns, schema=schema), numbers)

    def _open(self, source: Any, types: dict[str, pa.DataType], block_bytes: int) -> Any:
        try:
            return csv.open_csv(
                source,
                csv.ReadOptions(use_threads=False, block_size=block_bytes),
                csv.ParseOptions(newlines_in_values=True, invalid_row_handler=self._note_wrong_row),
                csv.ConvertOptions(
                    column_types=types,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowException as error:
            raise BadInput(self._sentence(error)) from error

    def _next(self, reader: Any) -> pa.RecordBatch | None:
        try:
            return reader.read_next_batch()
        except StopIteration:
            return None
        except pa.ArrowException as error:
            raise BadInput(self._sentence(error)) from error

    def _note_wrong_row(self, row: Any) -> str:
        self._wrong_row = row
        return "error"

    def _sentence(self, error: Exception) -> str:
        row = self._wrong_row
        if row is not None and row.number is not None:
            cells = f"{row.actual_columns} cells instead of {row.expected_columns}"
            return f"row {row.number - 1} of the CSV has {cells}: {row.text[:60]!r}"
        return f"the CSV cannot be read after row {self._done}: {error}"


def _check_header(names: Sequence[str], schema: pa.Schema) -> None:
    for name in names:
        if name not in schema.names:
            fields = ", ".join(schema.names)
            raise SchemaMismatch(f"the stream has no field {name!r}, as the CSV has; its fields are {fields}")
        if names.count(name) > 1:
            raise BadInput(f"the CSV has two columns {name!r}")
    for field in schema:
        if not field.nullable and field.name not in names:
            raise SchemaMismatch(f"the CSV has no column {field.name!r}, which may not be missing")


def _column(batch: pa.RecordBatch, field: pa.Field, numbers: Sequence[int]) -> pa.Array:
    at = batch.schema.get_field_index(field.name)
    if at < 0:
        return pa.nulls(batch.num_rows, field.type)
    texts = batch.column(at)
    if _is_string(field.type):
        return (texts if field.nullable else pc.fill_null(texts, "")).cast(field.type)
    if not is_text_for_arrow(field.type):
        values = [None if text is None else _json_value(text, field.type) for text in texts.to_pylist()]
        return read_column(values, field, numbers, "row")
    texts = pc.utf8_trim_whitespace(texts)
    try:
        return texts.cast(field.type)
    except pa.ArrowException as error:
        row = first_failing(texts, field.type)
        reason = f"{texts[row].as_py()!r} is not {field.type}"
        raise SchemaMismatch(f"row {numbers[row]}, field {field.name!r}: {reason}") from error


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_text_for_arrow(kind: pa.DataType) -> bool:
    """Whether Arrow itself reads the type from text and writes it."""
    types = pa.types
    return bool(
        _is_string(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_timestamp(kind)
        or types.is_date(kind)
    )


def _json_value(text: str, kind: pa.DataType) -> Any:
    """A cell as JSON lines would have it: text that is no JSON stands for itself."""
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    if binary and not text.startswith('{"base64":'):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


def _inferred(column: pa.Array) -> pa.DataType:
    if pa.types.is_null(column.type):
        return pa.string()
    if pa.types.is_timestamp(column.type):
        return pa.timestamp("us", tz=column.type.tz)
    return timely(column) if pa.types.is_string(column.type) else column.type
