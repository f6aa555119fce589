"""What looks like records in a tail and is none: values may hold anything."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from headrace.log import tail as tail_module
from headrace.log.disk import Disk
from headrace.log.tail import TAIL_FILES, Tail, read_tail

SALT = 1
BOMB_BYTES = 1 << 18
BOMB = (b"hrt1" + struct.pack("<I", BOMB_BYTES // 2)) * (BOMB_BYTES // 8)
"""At every eighth byte the beginning of a large record."""


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each checksum was taken of."""
    sizes: list[int] = []
    digest = tail_module._digest

    def noting(data: bytes, salt: int) -> int:
        sizes.append(len(data))
        return digest(data, salt)

    monkeypatch.setattr(tail_module, "_digest", noting)
    return sizes


def test_a_value_full_of_beginnings_costs_no_more_than_the_file_several_times(
    place: Path, summed: list[int]
) -> None:
    tail = Tail.open(Disk(), place, SALT)
    tail.write(BOMB, 0, 1, 0)
    tail.write(b"small", 1, 1, 1)
    tail.sync(tail.unsynced())
    tail.close()
    with (place / TAIL_FILES[0]).open("r+b") as file:
        file.write(b"torn")
    del summed[:]
    assert [record.payload for record in read_tail(Disk(), place, SALT, 1)] == [b"small"]
    assert 0 < sum(summed) < 32 * (place / TAIL_FILES[0]).stat().st_size
