"""The table of a segment's batches, and the ending that is made of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.disk import Disk
from headrace.log.frame import Header, Kind
from headrace.log.table import BatchTable, encode_ending, ending_bytes, read_footer
from headrace.log.view import View

SALT = 77


def table_of(counts: list[int]) -> BatchTable:
    """Batches of so many entries each, 64 bytes apart, whose keys are twice their indexes."""
    table, index = BatchTable(), 0
    for row, count in enumerate(counts):
        table.add(64 * row, Header(Kind.BATCH, index, count, 2 * index, 2 * (index + count - 1), row))
        index += count
    return table


counts = st.lists(st.integers(1, 5), max_size=40)


@given(counts)
def test_a_table_comes_back_as_it_was(given_counts: list[int]) -> None:
    table = table_of(given_counts)
    back = BatchTable.decode(pa.py_buffer(table.encode()))
    assert len(back) == len(table)
    assert back.same_as(table)
    assert list(back.counts) == given_counts


@given(counts, st.integers(0, 250))
def test_rows_are_found_by_index_and_by_key(given_counts: list[int], sought: int) -> None:
    table = table_of(given_counts)
    assert table.row_of_index(sought) == bisect_right(list(table.bases), sought) - 1
    assert table.row_of_key(sought) == bisect_left(list(table.last_keys), sought)


@given(counts, st.integers(0, 45))
def test_cutting_forgets_the_batches_from_an_offset_on(given_counts: list[int], row: int) -> None:
    table = table_of(given_counts)
    table.cut(64 * row)
    assert table.same_as(table_of(given_counts[:row]))


def test_tables_that_differ_are_not_the_same() -> None:
    assert not table_of([1, 2]).same_as(table_of([2, 1]))
    assert not table_of([1]).same_as(table_of([1, 1]))


@given(st.integers(0, 3000))
@settings(max_examples=25, deadline=None)
def test_the_room_kept_for_an_ending_is_enough(rows: int) -> None:
    ending = encode_ending(table_of([1] * rows), Header(Kind.FOOTER, rows), 640, None, SALT)
    assert len(ending) <= ending_bytes(rows)


def segment(path: Path, frames: bytes, ending: bytes) -> View:
    path.write_bytes(frames + ending)
    return View(Disk().open(path), salt=SALT, finalized=True, copying=True)


@pytest.mark.parametrize("file_bytes", [None, 4096])
def test_the_footer_is_found_from_the_end_of_the_file(tmp_path: Path, file_bytes: int | None) -> None:
    table = table_of([3, 1])
    ending = encode_ending(table, Header(Kind.FOOTER, 4), 128, file_bytes, SALT)
    view = segment(tmp_path / "segment", bytes(128), ending)
    if file_bytes is not None:
        assert view.size == file_bytes
    found = read_footer(view)
    assert found is not None
    assert found.same_as(table)


def test_a_damaged_ending_is_no_ending(tmp_path: Path) -> None:
    ending = encode_ending(table_of([3, 1]), Header(Kind.FOOTER, 4), 128, None, SALT)
    for at in range(len(ending)):
        damaged = bytearray(ending)
        damaged[at] ^= 0x04
        view = segment(tmp_path / "segment", bytes(128), bytes(damaged))
        assert read_footer(view) is None, f"byte {at}"
        view.close()


@pytest.mark.parametrize("size", [0, 10, 63, 64, 200])
def test_a_file_too_short_for_an_ending_has_none(tmp_path: Path, size: int) -> None:
    assert read_footer(segment(tmp_path / "segment", bytes(size), b"")) is None
