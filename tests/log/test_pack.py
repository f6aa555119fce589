"""Packing: lists of bytes become Arrow arrays, whatever their sizes, and nothing but bytes does."""

from __future__ import annotations

import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import Refused
from headrace.log.pack import pack

CHUNK_BYTES = 4096


def record(number: int, size: int) -> bytes:
    return (number.to_bytes(4, "little") * (size // 4 + 1))[:size]


def backwards(data: bytes) -> memoryview:
    """Bytes that do not follow one another in memory."""
    return memoryview(data[::-1])[::-1]


def in_pairs(data: bytes) -> memoryview | bytes:
    """Bytes of which `len` says only half."""
    return data if len(data) % 2 else memoryview(data).cast("H")


lists = st.one_of(
    st.builds(
        lambda count, size: [record(number, size) for number in range(count)],
        st.integers(0, 1200),
        st.sampled_from([0, 1, 20, 21, 100, 254, 255, 256, 3000, 5000]),
    ),
    st.builds(
        lambda sizes: [record(number, size) for number, size in enumerate(sizes)],
        st.lists(st.integers(0, 50) | st.integers(0, 9000), max_size=60),
    ),
    # full of what looks like the heads of small records, where those of others would stand
    st.lists(st.sampled_from([b"\xc4\x05\xc4\x05\xc4", b"\x05\xc4\x05\xc4", b"\xc4\x05" * 3]), max_size=60),
)


@given(lists, st.booleans())
def test_the_records_come_back_in_order_in_arrays_of_a_bounded_size(
    records: list[bytes], checked: bool
) -> None:
    found = list[bytes]()
    for array in pack(records, CHUNK_BYTES, checked=checked):
        array.validate(full=True)
        values = array.to_pylist()
        assert len(values) == 1 or sum(map(len, values)) <= 2 * CHUNK_BYTES
        found += values
    assert found == records


@pytest.mark.parametrize("size", [20, 21, 1000])
def test_an_array_that_nobody_has_any_more_is_gone_before_the_next_is_made(size: int) -> None:
    arrays = pack([record(number, size) for number in range(2000)], CHUNK_BYTES)
    gone = weakref.ref(next(arrays))
    assert gone() is None
    assert next(arrays) is not None


@given(lists.filter(bool), st.data())
def test_what_is_as_good_as_bytes_is_taken_wherever_it_stands(
    records: list[bytes], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(records) - 1))
    mixed: list[object] = [*records]
    mixed[at] = data.draw(st.sampled_from([bytearray, memoryview, backwards, in_pairs]))(records[at])
    arrays = pack(mixed, CHUNK_BYTES)  # type: ignore[arg-type]
    assert [value for array in arrays for value in array.to_pylist()] == records


@given(lists.filter(bool), st.data())
def test_anything_else_is_refused_before_the_first_array(records: list[bytes], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(records) - 1))
    size = len(records[at])
    mixed: list[object] = [*records]
    mixed[at] = data.draw(st.sampled_from(["x" * size, [0] * size, None, 7]))
    with pytest.raises(Refused, match="a record is bytes"):
        next(pack(mixed, CHUNK_BYTES))  # type: ignore[arg-type]
