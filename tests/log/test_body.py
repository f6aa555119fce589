"""Bodies: any record batch comes back equal, and no byte of it is uncovered."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.kernel.errors import Damaged, SchemaMismatch
from headrace.kernel.limits import COLUMN_SUMS_FROM_BYTES
from headrace.log.body import BodyDecoder, BodyEncoder, EncodedBody, schema_tag
from headrace.log.frame import Header, Kind

from .arrow_values import record_batches

COMPRESSIONS = ["none", "lz4", "zstd"]
slow = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def encoded(records: pa.RecordBatch, compression: str = "none") -> tuple[Header, bytes]:
    body = BodyEncoder(records.schema, compression).encode(records)
    return header_of(body, records.num_rows), b"".join(body.pieces)


def header_of(body: EncodedBody, rows: int) -> Header:
    return Header(Kind.BATCH, 0, rows, body_bytes=body.body_bytes, body_sum=body.body_sum, marks=body.marks)


def two_columns(rows: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"number": pa.array(range(rows), pa.int64()), "text": pa.array([f"text {i}" for i in range(rows)])}
    )


@slow
@given(record_batches(), st.sampled_from(COMPRESSIONS), st.data())
def test_any_batch_of_any_schema_comes_back_equal(
    records: pa.RecordBatch, compression: str, data: st.DataObject
) -> None:
    header, body = encoded(records, compression)
    assert len(body) == header.body_bytes
    assert len(body) % 64 == 0
    back = BodyDecoder(records.schema).decode(header, pa.py_buffer(body))
    back.validate(full=True)
    assert back.schema == records.schema
    assert back.equals(records)

    chosen = data.draw(st.lists(st.sampled_from(records.schema.names), min_size=1, unique=True))
    some = BodyDecoder(records.schema, chosen).decode(header, pa.py_buffer(body))
    assert some.equals(records.select(chosen))


@slow
@given(st.lists(record_batches(min_rows=1), min_size=1, max_size=1), st.integers(2, 4))
def test_one_encoder_serves_many_batches(one: list[pa.RecordBatch], times: int) -> None:
    records = one[0]
    encoder = BodyEncoder(records.schema, "none")
    for count in range(times):
        body = encoder.encode(part := records.slice(count % records.num_rows))
        header = header_of(body, part.num_rows)
        assert BodyDecoder(records.schema).decode(header, pa.py_buffer(b"".join(body.pieces))).equals(part)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("rows", [3, 20_000])
def test_any_damaged_byte_is_noticed(rows: int, compression: str) -> None:
    records = two_columns(rows)
    header, body = encoded(records, compression)
    assert header.by_columns == (records.nbytes >= COLUMN_SUMS_FROM_BYTES)
    decoder = BodyDecoder(records.schema)
    assert decoder.intact(header, pa.py_buffer(body))
    for at in {*range(0, len(body), max(1, len(body) // 200)), *range(64), len(body) - 1}:
        damaged = bytearray(body)
        damaged[at] ^= 0x10
        assert not decoder.intact(header, pa.py_buffer(bytes(damaged))), f"byte {at}"
        with pytest.raises(Damaged):
            decoder.decode(header, pa.py_buffer(bytes(damaged)))


def test_a_damaged_column_does_not_hurt_the_others() -> None:
    records = two_columns(20_000)
    header, body = encoded(records)
    damaged = body[:-100] + bytes([body[-100] ^ 1]) + body[-99:]
    buffer = pa.py_buffer(damaged)
    assert BodyDecoder(records.schema, ["number"]).decode(header, buffer).equals(records.select(["number"]))
    with pytest.raises(Damaged, match="'text'"):
        BodyDecoder(records.schema, ["text"]).decode(header, buffer)


def test_a_body_shorter_than_its_column_table_is_noticed() -> None:
    records = two_columns(20_000)
    header, body = encoded(records)
    for size in (0, 16, 64, len(body) - 64):
        with pytest.raises(Damaged):
            BodyDecoder(records.schema).decode(header, pa.py_buffer(body[:size]))


def test_a_batch_is_never_read_through_another_schema() -> None:
    records = two_columns(3)
    header, body = encoded(records)
    other = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.binary())])
    with pytest.raises(Damaged, match="another schema"):
        BodyDecoder(other).decode(header, pa.py_buffer(body))


def test_the_tag_of_a_schema_does_not_count_its_metadata() -> None:
    plain = two_columns(1).schema
    assert schema_tag(plain.with_metadata({"owner": "us"})) == schema_tag(plain)
    assert schema_tag(pa.schema(list(plain)[::-1])) != schema_tag(plain)


def test_reading_no_column_at_all_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="number, text"):
        BodyDecoder(two_columns(1).schema, [])


def test_a_column_that_does_not_exist_is_named() -> None:
    with pytest.raises(SchemaMismatch, match=r"'nope'.*number, text"):
        BodyDecoder(two_columns(1).schema, ["number", "nope"])


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.struct([("inner", pa.dictionary(pa.int32(), pa.int64()))]),
        pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_dictionaries_are_refused_at_any_depth(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="'colour'"):
        BodyEncoder(pa.schema([("colour", kind)]), "none")


def test_large_and_empty_strings_come_back() -> None:
    texts = ["", "x" * 3_000_000, "", "ü" * 70_000, ""]
    records = pa.record_batch({"text": pa.array(texts), "at": pa.array(range(5))})
    header, body = encoded(records, "zstd")
    assert BodyDecoder(records.schema).decode(header, pa.py_buffer(body)).column(0).to_pylist() == texts
