"""Keeping: copies never overwrite one another."""

from __future__ import annotations

from pathlib import Path

from headrace.kernel.clock import ManualClock
from headrace.log.disk import Disk
from headrace.log.keep import keep_bytes, keep_file


def test_copies_made_at_the_same_moment_are_all_kept(tmp_path: Path) -> None:
    clock = ManualClock(5)
    names = [keep_bytes(Disk(), tmp_path, "tail", b"%d" % number, clock) for number in range(4)]
    assert len(set(names)) == 4
    assert [(tmp_path / name).read_bytes() for name in names] == [b"0", b"1", b"2", b"3"]


def test_a_file_moved_aside_is_gone_from_its_place(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"bytes")
    name = keep_file(Disk(), tmp_path, "segment", ManualClock(5))
    assert not (tmp_path / "segment").exists()
    assert (tmp_path / name).read_bytes() == b"bytes"
