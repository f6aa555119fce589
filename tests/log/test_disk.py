"""The disk: each error of the system is told in our words, and writes are whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headrace.kernel.errors import Busy, DiskFailed, DiskFull, HeadraceError, NoPermission, NotALog, NotFound
from headrace.log.disk import Disk, error_for


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EACCES, NoPermission),
        (errno.EPERM, NoPermission),
        (errno.EROFS, NoPermission),
        (errno.ENOENT, NotFound),
        (errno.ENOTDIR, NotALog),
        (errno.EISDIR, NotALog),
        (errno.EIO, DiskFailed),
        (errno.EMFILE, Busy),
        (errno.ENFILE, Busy),
    ],
)
def test_each_error_of_the_system_has_a_place(number: int, error: type[HeadraceError]) -> None:
    told = error_for(OSError(number, os.strerror(number)), Path("/some/log"))
    assert type(told) is error
    assert "/some/log" in str(told)


def test_without_a_file_for_it_a_sync_of_names_failed_and_opening_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(Busy, match="ulimit -n"):
        Disk().open(tmp_path / "file")
    with pytest.raises(DiskFailed):  # the names have changed: that is in doubt
        Disk().sync_dir(tmp_path)


def test_a_write_of_thousands_of_parts_is_whole(tmp_path: Path) -> None:
    parts = [b"%d," % number for number in range(5000)]
    with Disk().opened(tmp_path / "file", write=True, create=True) as file:
        assert file.write(parts, 3) == sum(map(len, parts))
        assert file.read(1 << 20, 0) == b"\0\0\0" + b"".join(parts)


def test_a_write_that_the_kernel_takes_in_pieces_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, real_one = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: real(fd, [b"".join(parts)[:7]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, part, at: real_one(fd, bytes(part)[:7], at))
    with Disk().opened(tmp_path / "file", write=True, create=True) as file:
        file.write([b"0123456789", b"abcdefghij", b"ABC"], 0)
        assert file.read(100, 0) == b"0123456789abcdefghijABC"


def test_replacing_a_file_leaves_nothing_else_behind(tmp_path: Path) -> None:
    disk = Disk()
    disk.replace_whole(tmp_path / "file", b"a long first content")
    disk.replace_whole(tmp_path / "file", b"short")
    assert disk.read_whole(tmp_path / "file") == b"short"
    assert disk.names(tmp_path) == ["file"]


def test_a_lock_is_one_holders_and_ends_with_its_file(tmp_path: Path) -> None:
    disk = Disk()
    one = disk.open(tmp_path / "lock", write=True, create=True)
    two = disk.open(tmp_path / "lock", write=True)
    assert one.try_lock()
    assert not two.try_lock()
    one.close()
    assert two.try_lock()
    two.close()
    two.close()


def test_a_removed_file_is_known_to_be_unlinked(tmp_path: Path) -> None:
    disk = Disk()
    with disk.opened(tmp_path / "file", write=True, create=True) as file:
        assert file.linked()
        disk.remove(tmp_path / "file")
        disk.remove(tmp_path / "file")  # what is gone is gone
        assert not file.linked()


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    disk = Disk()
    for attempt in (
        lambda: disk.open(tmp_path / "no"),
        lambda: disk.names(tmp_path / "no"),
        lambda: disk.size(tmp_path / "no"),
        lambda: disk.rename(tmp_path / "no", tmp_path / "other"),
        lambda: disk.sync_dir(tmp_path / "no"),
    ):
        with pytest.raises(NotFound, match="no"):
            attempt()


def test_reserved_room_is_really_there_and_reads_as_zeros(tmp_path: Path) -> None:
    with Disk().opened(tmp_path / "file", write=True, create=True) as file:
        file.allocate(100_000)
        assert file.size() == 100_000
        assert (tmp_path / "file").stat().st_blocks * 512 >= 100_000
        assert file.read(100_000, 0) == bytes(100_000)


def test_blocks_are_taken_without_making_a_file_larger(tmp_path: Path) -> None:
    def room() -> int:
        return (tmp_path / "file").stat().st_blocks * 512

    with Disk().opened(tmp_path / "file", write=True, create=True) as file:
        file.write([b"abc"], 0)
        file.take_blocks(1 << 20, 3)
        assert (file.size(), file.read(10, 0)) == (3, b"abc")
        assert room() >= 1 << 20
        file.write([b"def"], 3)
        file.truncate(6)
        assert (file.size(), file.read(10, 0)) == (6, b"abcdef")
        assert room() < 1 << 20
        file.sync()


def test_a_file_that_takes_no_blocks_says_so() -> None:
    with Disk().opened(Path("/dev/null"), write=True) as file, pytest.raises(DiskFailed):
        file.take_blocks(1 << 20, 0)
