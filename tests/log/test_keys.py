"""Order keys: 64 bits that sort as the values do."""

from __future__ import annotations

import math
from bisect import bisect_left
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import BadSettings, HeadraceError, KeyOrder
from headrace.log.keys import (
    KeyColumn,
    decode_float,
    decode_int,
    encode_float,
    encode_int,
)

i64 = st.integers(-(1 << 63), (1 << 63) - 1)
floats = st.floats(allow_nan=False)
moments = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))

INTEGERS = {
    pa.int8(): (-(1 << 7), (1 << 7) - 1),
    pa.int16(): (-(1 << 15), (1 << 15) - 1),
    pa.int32(): (-(1 << 31), (1 << 31) - 1),
    pa.int64(): (-(1 << 63), (1 << 63) - 1),
    pa.uint8(): (0, (1 << 8) - 1),
    pa.uint16(): (0, (1 << 16) - 1),
    pa.uint32(): (0, (1 << 32) - 1),
    pa.uint64(): (0, (1 << 64) - 1),
}


def column(kind: pa.DataType) -> KeyColumn:
    return KeyColumn(pa.schema([pa.field("other", pa.string()), pa.field("key", kind)]), "key")


def batch(kind: pa.DataType, keys: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"other": pa.array(["x"] * len(keys)), "key": pa.array(keys, kind)})


@given(i64, i64)
def test_encoded_integers_sort_as_integers(a: int, b: int) -> None:
    assert (encode_int(a) < encode_int(b)) == (a < b)
    assert decode_int(encode_int(a)) == a
    assert 0 <= encode_int(a) < 1 << 64


@given(floats, floats)
def test_encoded_floats_sort_as_floats(a: float, b: float) -> None:
    assert (encode_float(a) < encode_float(b)) == (a < b)
    assert (encode_float(a) == encode_float(b)) == (a == b)
    assert decode_float(encode_float(a)) == a


def test_the_edges_of_floats_sort_as_they_should() -> None:
    edges = [-math.inf, -1.7e308, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.7e308, math.inf]
    assert sorted(map(encode_float, edges)) == [encode_float(edge) for edge in edges]
    assert encode_float(-0.0) == encode_float(0.0)


@given(moments, moments, st.sampled_from(["us", "ms", "s"]), st.sampled_from([None, "UTC", "Asia/Tokyo"]))
def test_encoded_timestamps_sort_as_timestamps(a: datetime, b: datetime, unit: str, zone: str | None) -> None:
    if zone is None:
        a, b = a.replace(tzinfo=None), b.replace(tzinfo=None)
    if unit != "us":
        a, b = a.replace(microsecond=0), b.replace(microsecond=0)
    keys = column(pa.timestamp(unit, zone))
    assert (keys.encode(a) < keys.encode(b)) == (a < b)
    assert keys.decode(keys.encode(a)) == a


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_every_integer_type_keeps_its_edges(kind: pa.DataType) -> None:
    least, most = INTEGERS[kind]
    keys = column(kind)
    assert keys.decode(keys.encode(least)) == least
    assert keys.decode(keys.encode(most)) == most
    assert keys.encode(least) < keys.encode(most)
    assert keys.span(batch(kind, [least, most])) == (keys.encode(least), keys.encode(most))


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_a_number_that_does_not_fit_the_type_is_refused_not_wrapped(kind: pa.DataType) -> None:
    least, most = INTEGERS[kind]
    for number in (least - 1, most + 1, 1 << 70):
        with pytest.raises(KeyOrder):
            column(kind).encode(number)


@pytest.mark.parametrize("value", ["tomorrow", None, object(), 1.5, math.nan, b"1", [1]])
def test_what_is_no_integer_key_is_refused_in_our_own_words(value: object) -> None:
    with pytest.raises(HeadraceError, match="key"):
        column(pa.int64()).encode(value)


@pytest.mark.parametrize("value", [math.nan, None, "tomorrow", 10**400])
def test_what_is_no_float_key_is_refused_in_our_own_words(value: object) -> None:
    with pytest.raises(HeadraceError, match="key"):
        column(pa.float64()).encode(value)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=20), st.booleans())
def test_a_batch_passes_if_and_only_if_its_keys_do_not_go_back(keys: list[int], strict: bool) -> None:
    pairs = list(pairwise(keys))
    in_order = all(a < b if strict else a <= b for a, b in pairs)
    key = column(pa.int64())
    if in_order:
        span = key.span(batch(pa.int64(), keys), strict=strict)
        assert span == (encode_int(keys[0]), encode_int(keys[-1]))
    else:
        with pytest.raises(KeyOrder, match="'key'"):
            key.span(batch(pa.int64(), keys), strict=strict)


def test_the_row_where_keys_go_back_is_named() -> None:
    with pytest.raises(KeyOrder, match="from 9 to 5 at row 2"):
        column(pa.int64()).span(batch(pa.int64(), [1, 9, 5]))


def test_minus_zero_does_not_come_before_zero() -> None:
    key = column(pa.float64())
    assert key.span(batch(pa.float64(), [0.0, -0.0])) == (encode_float(0.0), encode_float(0.0))
    with pytest.raises(KeyOrder):
        key.span(batch(pa.float64(), [-0.0, 0.0]), strict=True)


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.timestamp("us")], ids=str)
def test_a_null_key_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(KeyOrder, match="'key' is null in 1"):
        column(kind).span(batch(kind, [1, None, 3]))


def test_nan_is_refused() -> None:
    with pytest.raises(KeyOrder, match="NaN"):
        column(pa.float64()).span(batch(pa.float64(), [1.0, math.nan]))


@pytest.mark.parametrize("kind", [pa.int16(), pa.uint64(), pa.float32(), pa.timestamp("ms")], ids=str)
@given(
    keys=st.lists(st.integers(0, 60), min_size=1, max_size=30).map(sorted),
    sought=st.integers(0, 61),
    skip=st.integers(0, 5),
)
def test_finding_a_key_is_a_bisection(kind: pa.DataType, keys: list[int], sought: int, skip: int) -> None:
    records = batch(kind, [0] * skip + keys).slice(skip)
    key = column(kind)
    bits = key.span(batch(kind, [sought]))[0]
    assert key.find(records, bits) == bisect_left(keys, sought)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.bool_(), pa.binary(), pa.list_(pa.int64()), pa.decimal128(5, 2)], ids=str
)
def test_other_types_cannot_be_order_keys(kind: pa.DataType) -> None:
    with pytest.raises(BadSettings, match="'key'"):
        column(kind)


def test_an_order_key_must_be_a_field() -> None:
    with pytest.raises(BadSettings, match="'nope'"):
        KeyColumn(pa.schema([("at", pa.int64())]), "nope")


WEST, EAST = timezone(timedelta(hours=-8)), timezone(timedelta(hours=9))


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_time_that_could_not_be_given_back_is_no_key(unit: str) -> None:
    key = KeyColumn(pa.schema([("at", pa.timestamp(unit, "UTC"))]), "at")
    for edge, zone, beyond in ((datetime.max, EAST, WEST), (datetime.min, WEST, EAST)):
        edge = edge.replace(microsecond=0)
        assert key.decode(key.encode(edge.replace(tzinfo=UTC))) == edge.replace(tzinfo=UTC)
        assert key.decode(key.encode(edge.replace(tzinfo=zone))) == edge.replace(tzinfo=zone)
        with pytest.raises(KeyOrder, match="years"):
            key.encode(edge.replace(tzinfo=beyond))
    with pytest.raises(KeyOrder, match="years"):
        key.encode((1 << 63) - 1)


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_whatever_bits_are_stored_can_be_told_as_a_time(unit: str, zone: str | None) -> None:
    key = KeyColumn(pa.schema([("at", pa.timestamp(unit, zone))]), "at")
    told = [key.decode(bits) for bits in (0, 1, 1 << 62, 1 << 63, (1 << 64) - 1)]
    assert told == sorted(told)
    assert (told[0].year, told[-1].year) == (1, 9999)


def test_a_moment_and_its_number_are_the_same_key() -> None:
    key = column(pa.timestamp("us", "UTC"))
    moment = datetime(2024, 2, 29, tzinfo=UTC) + timedelta(microseconds=7)
    number = round(moment.timestamp()) * 1_000_000 + 7
    assert key.encode(moment) == key.encode(number)
