"""Packing: lists of bytes become Arrow arrays, whatever their sizes, and nothing but bytes does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import Refused
from headrace.log.pack import Packing

CHUNK_BYTES = 4096


def record(number: int, size: int) -> bytes:
    return (number.to_bytes(4, "little") * (size // 4 + 1))[:size]


lists = st.one_of(
    st.builds(
        lambda count, size: [record(number, size) for number in range(count)],
        st.integers(0, 1200),
        st.sampled_from([0, 1, 20, 100, 3000, 5000]),
    ),
    st.builds(
        lambda sizes: [record(number, size) for number, size in enumerate(sizes)],
        st.lists(st.integers(0, 50) | st.integers(0, 9000), max_size=60),
    ),
)


@given(lists, st.booleans())
def test_the_records_come_back_in_order_in_arrays_of_a_bounded_size(
    records: list[bytes], reuse: bool
) -> None:
    packing, found = Packing(CHUNK_BYTES, reuse=reuse), list[bytes]()
    for array in packing.arrays(records):
        array.validate(full=True)
        values = array.to_pylist()
        assert len(values) == 1 or sum(map(len, values)) <= 2 * CHUNK_BYTES
        found += values
    assert found == records


@given(lists.filter(bool), st.data())
def test_what_is_as_good_as_bytes_is_taken_wherever_it_stands(
    records: list[bytes], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(records) - 1))
    mixed: list[object] = [*records]
    mixed[at] = data.draw(st.sampled_from([bytearray, memoryview]))(records[at])
    arrays = Packing(CHUNK_BYTES, reuse=False).arrays(mixed)  # type: ignore[arg-type]
    assert [value for array in arrays for value in array.to_pylist()] == records


@given(lists.filter(bool), st.data())
def test_anything_else_is_refused_before_the_first_array(records: list[bytes], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(records) - 1))
    size = len(records[at])
    mixed: list[object] = [*records]
    mixed[at] = data.draw(st.sampled_from(["x" * size, [0] * size, None, 7]))
    with pytest.raises(Refused, match="a record is bytes"):
        next(Packing(CHUNK_BYTES, reuse=True).arrays(mixed))  # type: ignore[arg-type]


def test_without_reuse_an_array_outlives_the_next_one() -> None:
    records = [record(number, 20) for number in range(1000)]
    arrays = list(Packing(CHUNK_BYTES, reuse=False).arrays(records))
    assert len(arrays) > 1
    assert [value for array in arrays for value in array.to_pylist()] == records
