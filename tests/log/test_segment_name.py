"""Names of segments: they say it all, they sort, and foreign files are not taken for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log import Log, repair
from headrace.log.segment_name import ActiveName, FinalName, FreeName, Listing, parse_name

from .samples import ORDERS, orders

indexes = st.integers(0, (1 << 63) - 1)
keys = st.integers(0, (1 << 64) - 1)
finals = st.builds(FinalName, indexes, indexes, keys, keys)


@given(finals | st.builds(ActiveName, st.integers(1, 99_999_999), indexes) | st.builds(FreeName, indexes))
def test_a_name_comes_back_as_it_was(name: FinalName | ActiveName | FreeName) -> None:
    if isinstance(name, FreeName) and name.number >= 10**16:
        return
    assert parse_name(str(name)) == name


@pytest.mark.parametrize("epoch", [1, 99_999_999, 100_000_000, (1 << 32) - 1])
def test_every_epoch_that_a_frame_can_hold_has_a_name(epoch: int) -> None:
    name = ActiveName(epoch, 5)
    assert parse_name(str(name)) == name


@given(finals, finals)
def test_names_sort_as_the_log_does(a: FinalName, b: FinalName) -> None:
    assert (str(a) < str(b)) == (a < b)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "meta.json",
        "lock",
        "notes.txt",
        "00000000000000000000.active",
        "00000000000000000000.00000001.active.tmp",
        "0-1.k0-1.seg",
        "00000000000000000000-00000000000000000001.seg",
        "00000000000000000000-00000000000000000001.k0000000000000000-000000000000000G.seg",
        "x00000000000000000000.00000001.active",
        "00000000000000000000.00000001.active\n",
        "٠" * 20 + ".00000001.active",
        "1.free",
    ],
)
def test_other_files_are_not_ours(text: str) -> None:
    assert parse_name(text) is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.randoms())
def test_a_listing_puts_segments_in_order(lengths: list[int], shuffled: object) -> None:
    expected, at = [], 0
    for length in lengths:
        expected.append(FinalName(at, at + length - 1, at, at + length - 1))
        at += length
    active = ActiveName(3, at)
    names = [*map(str, expected), str(active), "notes.txt", str(FreeName(2)), str(FreeName(1))]
    shuffled.shuffle(names)  # type: ignore[attr-defined]
    listing = Listing.of(names)
    assert listing.finals == tuple(expected)
    assert listing.active == active
    assert listing.segments == [*expected, active]
    assert listing.free == (FreeName(1), FreeName(2))
    assert listing.obsolete == ()


def test_the_newest_epoch_wins_and_what_it_replaces_is_obsolete() -> None:
    kept = FinalName(0, 9, 0, 9)
    replaced = FinalName(10, 19, 10, 19)
    old, new = ActiveName(1, 20), ActiveName(2, 10)
    listing = Listing.of([str(kept), str(replaced), str(old), str(new)])
    assert listing.segments == [kept, new]
    assert set(listing.obsolete) == {old, replaced}


def test_an_empty_directory_has_no_segments() -> None:
    listing = Listing.of([])
    assert (listing.segments, listing.active, listing.free) == ([], None, ())


@pytest.mark.parametrize(
    "stray",
    [
        "99999999999999999999.9999999999.active",
        "00000000000000000000.4294967296.active",
        "09223372036854775808.0000000001.active",
        f"{0:020d}-{1 << 63:020d}.k{0:016x}-{0:016x}.seg",
    ],
)
def test_a_stray_file_with_numbers_that_no_log_reaches_is_not_taken_for_a_segment(
    tmp_path: Path, stray: str
) -> None:
    assert parse_name(stray) is None
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 3))
    (tmp_path / "log" / stray).write_bytes(b"")
    assert repair(tmp_path / "log").after.ok  # type: ignore[union-attr]
    with Log.open(tmp_path / "log") as log:
        log.append(orders(3, 6))
        assert log.info().foreign == [stray]
        assert log.verify().entries == 6
