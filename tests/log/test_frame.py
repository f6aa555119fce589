"""Frames: headers come back as they were, and anything else is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.frame import (
    HEADER_BYTES,
    Header,
    Kind,
    checksum,
    decode_header,
    encode_frame,
    encode_header,
    marks,
    padding,
)

u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
salts = u64


@st.composite
def headers(draw: st.DrawFn) -> Header:
    return Header(
        draw(st.sampled_from(Kind)),
        draw(u64),
        draw(u32),
        draw(u64),
        draw(u64),
        draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        draw(u32),
        draw(st.integers(0, (1 << 26) - 1)) * 64,
        draw(u64),
        marks(
            grouped=draw(st.booleans()),
            by_columns=draw(st.booleans()),
            schema_tag=draw(st.integers(0, 0xFFFF)),
        ),
    )


@given(headers(), salts)
def test_a_header_comes_back_as_it_was(header: Header, salt: int) -> None:
    raw = encode_header(header, salt)
    assert len(raw) == HEADER_BYTES
    assert decode_header(raw, salt) == header


@given(headers(), salts)
@settings(max_examples=20)
def test_any_flipped_bit_is_noticed(header: Header, salt: int) -> None:
    raw = encode_header(header, salt)
    for bit in range(HEADER_BYTES * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_header(bytes(flipped), salt) is None, f"bit {bit}"


@given(headers(), st.integers(0, HEADER_BYTES - 1), salts)
def test_a_cut_off_header_is_no_header(header: Header, size: int, salt: int) -> None:
    assert decode_header(encode_header(header, salt)[:size], salt) is None


@given(headers(), salts, salts)
def test_a_header_of_another_log_is_no_header_unless_it_starts_a_segment(
    header: Header, salt: int, other: int
) -> None:
    decoded = decode_header(encode_header(header, salt), other)
    if header.kind == Kind.START:
        assert decoded == header  # it is what tells the salt when meta.json is lost
    elif salt != other:
        assert decoded is None


@pytest.mark.parametrize("size", [1, 63, 65])
def test_a_body_length_that_is_not_a_multiple_of_64_is_refused(size: int) -> None:
    assert decode_header(encode_header(Header(Kind.BATCH, 0, body_bytes=size), 1), 1) is None


def test_a_kind_that_does_not_exist_is_refused() -> None:
    assert decode_header(encode_header(Header(8, 0), 1), 1) is None


def test_the_next_index_depends_on_the_kind() -> None:
    assert Header(Kind.BATCH, 7, entries=3).next_index == 10
    assert Header(Kind.GAP, 7, first_key=7, last_key=12).next_index == 12
    for kind in (Kind.HEAD, Kind.COMMIT, Kind.BASE, Kind.START, Kind.FOOTER):
        assert Header(kind, 7, first_key=99, last_key=99).next_index == 7


@given(st.booleans(), st.booleans(), st.integers(0, 0xFFFF))
def test_marks_do_not_disturb_one_another(grouped: bool, by_columns: bool, tag: int) -> None:
    header = Header(Kind.BATCH, 0, marks=marks(grouped=grouped, by_columns=by_columns, schema_tag=tag))
    assert (header.grouped, header.by_columns, header.schema_tag) == (grouped, by_columns, tag)


@given(st.binary(max_size=300))
def test_a_whole_frame_is_padded_and_summed(body: bytes) -> None:
    raw = encode_frame(Header(Kind.COMMIT, 1), body, 9)
    header = decode_header(raw[:HEADER_BYTES], 9)
    assert header is not None
    assert len(raw) == header.frame_bytes
    assert len(raw) % HEADER_BYTES == 0
    assert raw[HEADER_BYTES:] == body + padding(len(body))
    assert header.body_sum == checksum(raw[HEADER_BYTES:])
