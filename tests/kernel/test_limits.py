"""Limits must fit the fields of the format that hold what they bound."""

from __future__ import annotations

from headrace.kernel import limits


def test_what_is_limited_fits_its_field() -> None:
    assert limits.BATCH_BYTES_MAX < 1 << 32  # the body's length is a u32
    assert limits.BATCH_BYTES_MAX % limits.FRAME_ALIGNMENT_BYTES == 0
    assert limits.INDEX_MAX < 1 << 63  # bigint
    assert limits.CONTAINER_BYTES_MIN % limits.SECTOR_BYTES == 0
    assert limits.CONTAINER_BYTES_MAX % limits.SECTOR_BYTES == 0
    assert limits.SECTOR_BYTES % limits.FRAME_ALIGNMENT_BYTES == 0


def test_the_longest_name_with_its_suffixes_is_a_file_name() -> None:
    assert limits.NAME_BYTES_MAX + len(".tmp") <= 255
