"""The mark: what it says comes back, and what cannot be believed says nothing."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.log.disk import Disk
from headrace.log.mark import MARK_FILE, Extent, Mark, read_extent

u64 = st.integers(0, (1 << 64) - 1)
extents = st.builds(Extent, u64, u64, u64, st.integers(0, (1 << 32) - 1), st.booleans(), st.booleans())
in_one_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def write(directory: Path, extent: Extent) -> None:
    mark = Mark.open(Disk(), directory, write=True)
    mark.write(extent)
    mark.close()


@in_one_directory
@given(extents)
def test_a_mark_comes_back_as_it_was(tmp_path: Path, extent: Extent) -> None:
    write(tmp_path, extent)
    assert (tmp_path / MARK_FILE).stat().st_size == 64
    assert read_extent(Disk(), tmp_path) == extent


def test_a_mark_with_any_flipped_bit_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, Extent(1, 2, 3, 4, clean=True))
    raw = (tmp_path / MARK_FILE).read_bytes()
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / MARK_FILE).write_bytes(flipped)
        assert read_extent(Disk(), tmp_path) is None, f"bit {bit}"


def test_a_short_or_missing_mark_says_nothing(tmp_path: Path) -> None:
    assert read_extent(Disk(), tmp_path) is None
    write(tmp_path, Extent(1, 2, 3, 4))
    raw = (tmp_path / MARK_FILE).read_bytes()
    for size in (0, 1, 63):
        (tmp_path / MARK_FILE).write_bytes(raw[:size])
        assert read_extent(Disk(), tmp_path) is None


def test_reading_never_makes_a_mark(tmp_path: Path) -> None:
    Mark.open(Disk(), tmp_path, write=False).close()
    assert list(tmp_path.iterdir()) == []
