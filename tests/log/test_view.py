"""Views of a segment that becomes smaller under them: a torn frame was cut."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.log.disk import Disk, File
from headrace.log.frame import HEADER_BYTES, Header, Kind
from headrace.log.view import View

MIB = 1 << 20


def frame(size: int) -> Header:
    return Header(Kind.BATCH, 0, body_bytes=size - HEADER_BYTES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    path.write_bytes(bytes(10 * MIB))
    return path


def view_of(path: Path) -> View:
    return View(Disk().open(path), salt=0, finalized=False, copying=False)


def is_mapped(view: View, body: pa.Buffer) -> bool:
    mapped = view._mapped
    return mapped is not None and mapped.address <= body.address < mapped.address + mapped.size


def test_whole_frames_are_not_copied(path: Path) -> None:
    view = view_of(path)
    body = view.body(0, frame(MIB))
    assert body is not None
    assert is_mapped(view, body)


def test_a_frame_that_is_not_all_there_any_more_is_not_taken_from_an_older_map(path: Path) -> None:
    view = view_of(path)
    assert view.body(0, frame(MIB)) is not None
    os.truncate(path, 2 * MIB)
    assert view.body(MIB, frame(4 * MIB)) is None
    os.truncate(path, 6 * MIB)
    assert view.body(MIB, frame(4 * MIB)) is not None


def test_the_end_of_the_file_is_read_even_where_an_older_map_reaches(path: Path) -> None:
    view = view_of(path)
    assert view.body(0, frame(MIB)) is not None
    os.truncate(path, 2 * MIB)
    body = view.body(2 * MIB - 4096, frame(4096))
    assert body is not None
    assert not is_mapped(view, body)


def test_a_file_that_was_larger_when_it_was_looked_at_is_mapped_as_it_is_now(path: Path) -> None:
    view = view_of(path)
    os.truncate(path, 3 * MIB)
    assert view.body(0, frame(MIB)) is not None


def test_a_file_that_becomes_smaller_while_it_is_mapped_is_read(path: Path) -> None:
    class Shrinking(File):
        def size(self) -> int:
            size = super().size()
            os.truncate(self.path, 2 * MIB)
            return size

    disk = Disk()
    disk.file_class = Shrinking
    view = View(disk.open(path), salt=0, finalized=False, copying=False)
    path.write_bytes(bytes(10 * MIB))
    body = view.body(0, frame(MIB))
    assert body is not None
    assert not is_mapped(view, body)
