"""JSON lines: text as entries of a log (`json_rows` goes the other way).

    whole numbers, bool, string     as in JSON
    float                           a number, or "NaN", "Infinity", "-Infinity"
    binary                          a string, taken as UTF-8, or {"base64": "…"}
    timestamp, date, time           ISO 8601: "2024-07-01T12:00:00Z"
    duration                        a whole number in the field's unit
    decimal                         a string or a whole number
    list                            an array
    struct, map with string keys    an object; other maps are an array of pairs

Reading is strict: a field that the log does not have, a missing one that may not be null, or a number in
quotes is refused with its line and field, before anything is appended.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from datetime import time
from itertools import islice
from typing import Any, NoReturn

import msgspec
import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch
from headrace.wire.casting import first_failing
from headrace.wire.json_rows import textual

_ROWS_PER_BATCH = 1 << 16
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

_Read = Callable[[Any], Any]


class _Wrong(Exception):
    """A value that does not fit its field; `inner` says where in it, if it has parts."""

    def __init__(self, sentence: str, inner: str = "") -> None:
        super().__init__(sentence)
        self.inner = inner


def read_lines(lines: Iterable[bytes], schema: pa.Schema, owner: str = "log") -> pa.Table:
    """The entries that `lines` hold, one JSON object each; SchemaMismatch names the first wrong line."""
    reader = LineReader(schema, owner)
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    batches: list[pa.RecordBatch] = []
    while some := list(islice(numbered, _ROWS_PER_BATCH)):
        batches.append(reader.batch(some))
    return pa.Table.from_batches(batches, schema=schema)


class LineReader:
    """Reads lines that hold entries of one schema; `owner` is what errors call the one who has it."""

    def __init__(self, schema: pa.Schema, owner: str = "log") -> None:
        self._schema = schema
        self._owner = owner
        self._readers = {field.name: _field_reader(field) for field in schema}

    def batch(self, lines: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
        """The entries of some lines, given with their numbers; SchemaMismatch names the first wrong one."""
        rows = [self._row(number, line) for number, line in lines]
        numbers = [number for number, _ in lines]
        columns = [
            _column([row[field.name] for row in rows], field, numbers, "line") for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SchemaMismatch(f"line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise SchemaMismatch(
                f"line {number} is {_kind(row)}: an entry is an object with the {self._owner}'s fields"
            )
        readers = self._readers
        if not row.keys() <= readers.keys():
            unknown = next(name for name in row if name not in readers)
            fields = ", ".join(readers)
            raise SchemaMismatch(
                f"line {number}: the {self._owner} has no field {unknown!r}; its fields are {fields}"
            )
        name = ""
        try:
            for name, read in readers.items():
                row[name] = read(row.get(name))
        except _Wrong as wrong:
            raise SchemaMismatch(f"line {number}, field {name + wrong.inner!r}: {wrong}") from wrong
        return row


def read_column(values: Sequence[Any], field: pa.Field, numbers: Sequence[int], unit: str) -> pa.Array:
    """JSON values as a column; SchemaMismatch names the first wrong one by its number."""
    read = _field_reader(field)
    made: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        try:
            made.append(read(value))
        except _Wrong as wrong:
            where = f"{unit} {number}, field {field.name + wrong.inner!r}"
            raise SchemaMismatch(f"{where}: {wrong}") from wrong
    return _column(made, field, numbers, unit)


def _column(values: list[Any], field: pa.Field, numbers: Sequence[int], unit: str) -> pa.Array:
    """Values as the readers give them as a column: text is read by Arrow, all of it at once."""
    text = textual(field.type, to_read=True)
    try:
        column = pa.array(values, text)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for number, value in zip(numbers, values, strict=True):
            try:
                pa.array([value], text)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise SchemaMismatch(f"{unit} {number}, field {field.name!r}: {error}") from error
        raise
    if text == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        row = first_failing(column, field.type)
        where, reason = field.name, str(error)
        try:
            _field_reader(field, exact=True)(values[row])
        except _Wrong as wrong:
            where, reason = field.name + wrong.inner, str(wrong)
        raise SchemaMismatch(f"{unit} {numbers[row]}, field {where!r}: {reason}") from error


def _field_reader(field: pa.Field, exact: bool = False) -> _Read:
    """What reads a field's values. Unless `exact`, text of times and decimals is only known to be text."""
    read, nullable, kind = _reader(field.type, exact), field.nullable, field.type

    def read_field(value: Any) -> Any:
        if value is not None:
            return read(value)
        if nullable:
            return None
        raise _Wrong(f"it is missing or null, and must be a {kind}")

    return read_field


def _reader(kind: pa.DataType, exact: bool) -> _Read:
    """What turns a JSON value that is not null into one that Arrow takes for `kind`, or its text."""
    types = pa.types
    if types.is_boolean(kind):
        return lambda value: value if isinstance(value, bool) else _refuse(value, "true or false")
    if types.is_integer(kind):
        return _integer_reader(kind)
    if types.is_floating(kind):
        return _read_float
    if types.is_string(kind) or types.is_large_string(kind):
        return lambda value: value if isinstance(value, str) else _refuse(value, "a string")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _read_bytes
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind):
        return _text_reader(kind, exact)
    if types.is_time(kind):
        return _read_time
    if types.is_duration(kind):
        return _integer_reader(pa.int64())
    if types.is_struct(kind):
        return _struct_reader(kind, exact)
    if types.is_map(kind):
        return _map_reader(kind, exact)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _list_reader(kind, exact)
    return lambda value: value  # rarer types: Arrow says whether it takes the value


def _integer_reader(kind: pa.DataType) -> _Read:
    signed = pa.types.is_signed_integer(kind)
    low = -(1 << (kind.bit_width - 1)) if signed else 0
    high = (1 << (kind.bit_width - signed)) - 1

    def read(value: Any) -> int:
        if type(value) is not int:
            _refuse(value, "a whole number")
        if not low <= value <= high:
            raise _Wrong(f"{value} does not fit {kind} ({low} to {high})")
        return int(value)

    return read


def _read_float(value: Any) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise _Wrong(f"{_shortened(str(value))} is too large for a float") from None


def _read_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise _Wrong(f"it is not base64 ({error})") from None
    return _refuse(value, 'a string or {"base64": "…"}')


def _text_reader(kind: pa.DataType, exact: bool) -> _Read:
    """Arrow reads the text itself, exactly and to the last digit: a column at a time (see `_column`)."""
    wanted, example = "a decimal number in a string", ""
    if not pa.types.is_decimal(kind):
        sample = (
            pa.array([0], pa.int32()).cast(pa.int64()).cast(pa.timestamp("s", tz=getattr(kind, "tz", None)))
        )
        text = str(sample.cast(pa.string())[0].as_py()).replace(" ", "T")
        wanted = "a time in ISO 8601" if pa.types.is_timestamp(kind) else "a date in ISO 8601"
        example = f", such as {(text if pa.types.is_timestamp(kind) else text[:10])!r}"

    whole_too = pa.types.is_decimal(kind)

    def read(value: Any) -> str:
        if whole_too and type(value) is int:
            value = str(value)
        if not isinstance(value, str):
            _refuse(value, wanted + example)
        if exact and first_failing(pa.array([value]), kind) == 0:
            raise _Wrong(f"{_shortened(value)!r} is not {wanted} that fits {kind}{example}")
        return value

    return read


def _read_time(value: Any) -> time:
    try:
        return time.fromisoformat(value)
    except (TypeError, ValueError):
        _refuse(value, "a time of day, such as '12:30:00'")


def _list_reader(kind: pa.DataType, exact: bool) -> _Read:
    read = _field_reader(kind.value_field, exact)

    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, list):
            _refuse(value, "an array")
        return [_inside(f"[{at}]", read, item) for at, item in enumerate(value)]

    return read_list


def _struct_reader(kind: pa.DataType, exact: bool) -> _Read:
    readers = {field.name: _field_reader(field, exact) for field in kind}

    def read_struct(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(value, "an object")
        for name in value:
            if name not in readers:
                raise _Wrong("there is no such field", f".{name}")
        return {name: _inside(f".{name}", read, value.get(name)) for name, read in readers.items()}

    return read_struct


def _map_reader(kind: pa.DataType, exact: bool) -> _Read:
    read_key, read_item = _field_reader(kind.key_field, exact), _field_reader(kind.item_field, exact)

    def read_map(value: Any) -> list[tuple[Any, Any]]:
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
            _refuse(value, "an object, or an array of pairs")
        return [(read_key(key), _inside(f"[{key!r}]", read_item, item)) for key, item in pairs]

    return read_map


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _inside(step: str, read: _Read, value: Any) -> Any:
    try:
        return read(value)
    except _Wrong as wrong:
        raise _Wrong(str(wrong), step + wrong.inner) from None


def _refuse(value: Any, wanted: str) -> NoReturn:
    raise _Wrong(
        f"it must be {wanted}, not {_kind(value)} ({_shortened(msgspec.json.encode(value).decode())})"
    )


def _kind(value: Any) -> str:
    kinds: dict[type[Any], str] = {
        str: "a string",
        bool: "a bool",
        int: "a whole number",
        float: "a fraction",
        list: "an array",
        dict: "an object",
    }
    return kinds.get(type(value), "null")


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
