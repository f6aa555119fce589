"""JSON lines: strict on the way in, the same on the way out."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.running import headrace, log

from headrace.kernel.errors import SchemaMismatch
from headrace.wire.json_lines import read_lines
from headrace.wire.json_rows import rows_of

SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("n", pa.int8()),
        pa.field("x", pa.float64()),
        pa.field("ok", pa.bool_()),
        pa.field("user", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(5, 2)),
        pa.field("days", pa.list_(pa.date32())),
        pa.field("who", pa.struct([pa.field("name", pa.string(), nullable=False)])),
        pa.field("tags", pa.map_(pa.string(), pa.int64())),
        pa.field("clock", pa.time64("us")),
        pa.field("took", pa.duration("ms")),
    ]
)
AT = '"at": "2024-07-01T00:00:00Z"'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "line 3 is not JSON"),
        ("[1]", "line 3 is an array"),
        ("{}", "line 3, field 'at': it is missing or null"),
        ('{"at": 5}', "line 3, field 'at': it must be a time in ISO 8601"),
        ('{"at": "2024-07-01"}', "line 3, field 'at': '2024-07-01' is not a time"),
        (f'{{{AT}, "extra": 1}}', "line 3: the log has no field 'extra'"),
        (f'{{{AT}, "n": 300}}', "line 3, field 'n': 300 does not fit int8"),
        (f'{{{AT}, "n": 1.5}}', "line 3, field 'n': it must be a whole number"),
        (f'{{{AT}, "n": true}}', "line 3, field 'n': it must be a whole number, not a bool"),
        (f'{{{AT}, "x": "1"}}', "line 3, field 'x': it must be a number"),
        (f'{{{AT}, "ok": 1}}', "line 3, field 'ok': it must be true or false"),
        (f'{{{AT}, "user": 5}}', "line 3, field 'user': it must be a string"),
        (f'{{{AT}, "data": {{"base64": "!"}}}}', "line 3, field 'data': it is not base64"),
        (f'{{{AT}, "data": [1]}}', "line 3, field 'data': it must be a string or"),
        (f'{{{AT}, "day": "July"}}', "line 3, field 'day': 'July' is not a date"),
        (f'{{{AT}, "price": "1234567"}}', "line 3, field 'price': '1234567' is not a decimal"),
        (f'{{{AT}, "days": ["2024-01-01", 5]}}', "line 3, field 'days[1]': it must be a date"),
        (f'{{{AT}, "who": {{}}}}', "line 3, field 'who.name': it is missing or null"),
        (f'{{{AT}, "who": {{"name": "a", "age": 1}}}}', "line 3, field 'who.age': there is no such field"),
        (f'{{{AT}, "tags": 5}}', "line 3, field 'tags': it must be an object"),
        (f'{{{AT}, "tags": [5]}}', "line 3, field 'tags': it must be an object"),
        (f'{{{AT}, "clock": "noon"}}', "line 3, field 'clock': it must be a time of day"),
        (f'{{{AT}, "took": "long"}}', "line 3, field 'took': it must be a whole number"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(line: str, said: str) -> None:
    lines = [f"{{{AT}}}".encode(), b"\n", line.encode()]
    with pytest.raises(SchemaMismatch) as refused:
        read_lines(lines, SCHEMA)
    assert said in str(refused.value)


def test_a_wrong_line_anywhere_means_that_nothing_is_appended(tmp_path: Path) -> None:
    log("create", tmp_path / "a", "--field", "n:int64")
    given_lines = b'{"n": 1}\n' * 1000 + b'{"n": "two"}\n'
    refused = headrace("log", "append", tmp_path / "a", given=given_lines)
    assert refused.code == 1
    assert refused.err.startswith("error (schema_mismatch): line 1001, field 'n': ")
    assert log("info", tmp_path / "a", "--json").json["next_index"] == 0


def test_an_order_key_that_goes_back_appends_nothing(tmp_path: Path) -> None:
    log("create", tmp_path / "a", "--field", "n:int64", "--order-by", "n")
    refused = headrace("log", "append", tmp_path / "a", given=b'{"n": 2}\n{"n": 1}\n')
    assert (refused.code, refused.err[:17]) == (1, "error (key_order)")
    assert log("info", tmp_path / "a", "--json").json["next_index"] == 0


_DAYS = st.dates().map(str)
ENTRIES = st.fixed_dictionaries(
    {"at": st.datetimes().map(lambda at: at.isoformat(timespec="microseconds") + "Z")},
    optional={
        "n": st.integers(-128, 127),
        "x": st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "-Infinity"]),
        "ok": st.booleans(),
        "user": st.text(st.characters(exclude_categories=["Cs"])),
        "day": _DAYS,
        "days": st.lists(_DAYS | st.none()),
        "who": st.fixed_dictionaries({"name": st.text(st.characters(exclude_categories=["Cs"]))}),
        "tags": st.dictionaries(st.sampled_from("abc"), st.integers(-5, 5) | st.none()),
        "took": st.integers(-(10**9), 10**9),
    },
)


@settings(max_examples=30, deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=5))
def test_what_is_read_is_what_is_written(entries: list[dict[str, object]]) -> None:
    table = read_lines([json.dumps(entry).encode() for entry in entries], SCHEMA)
    rows = rows_of(table.to_batches()[0])
    assert [{name: row[name] for name in entry} for row, entry in zip(rows, entries, strict=True)] == entries
    assert all(
        row[name] is None for row, entry in zip(rows, entries, strict=True) for name in row.keys() - entry
    )


@settings(max_examples=30, deadline=None)
@given(st.binary())
def test_bytes_are_text_where_they_can_be_and_come_back_either_way(data: bytes) -> None:
    schema = pa.schema([pa.field("data", pa.binary())])
    rows = rows_of(pa.record_batch([pa.array([data])], schema=schema))
    back = read_lines([json.dumps(row).encode() for row in rows], schema)
    assert back.column(0).to_pylist() == [data]
