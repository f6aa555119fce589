"""Keeping: copies never overwrite one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.kernel.clock import ManualClock
from headrace.log import keep
from headrace.log.disk import Disk
from headrace.log.keep import keep_file, keep_part


def test_copies_made_at_the_same_moment_are_all_kept(tmp_path: Path) -> None:
    clock = ManualClock(5)
    (tmp_path / "segment").write_bytes(b"0123")
    with Disk().opened(tmp_path / "segment") as file:
        names = [keep_part(Disk(), tmp_path, "tail", file, at, at + 1, clock) for at in range(4)]
    assert len(set(names)) == 4
    assert [(tmp_path / name).read_bytes() for name in names] == [b"0", b"1", b"2", b"3"]


def test_what_is_kept_is_copied_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "_PIECE_BYTES", 3)
    (tmp_path / "segment").write_bytes(b"0123456789")
    with Disk().opened(tmp_path / "segment") as file:
        name = keep_part(Disk(), tmp_path, "tail", file, 2, 10, ManualClock(5))
    assert (tmp_path / name).read_bytes() == b"23456789"
    assert [each.name for each in (tmp_path / "kept").iterdir()] == [Path(name).name]


def test_a_file_moved_aside_is_gone_from_its_place(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"bytes")
    name = keep_file(Disk(), tmp_path, "segment", ManualClock(5))
    assert not (tmp_path / "segment").exists()
    assert (tmp_path / name).read_bytes() == b"bytes"
