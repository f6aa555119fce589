"""The disk: the one seam through which the log touches files.

Everything durable that headrace does is made of the verbs below, so that a test can stand in between
and tear a write, forget what was not synced, fill the disk up or fail it (tests/crash). What each
promises, and recovery relies on:

    write      all bytes or an error; an error may leave any part of them behind
    sync       after it returns, what was written before is on the disk; after it *fails* nothing is
               known, and calling it again proves nothing (the kernel may have dropped the pages)
    rename     atomic; on the disk only after sync_dir
    sync_dir   creations, renames and removals in a directory are on the disk

OSErrors are turned into headrace's own errors here, once, with the path in the sentence.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from headrace.kernel.errors import (
    BadName,
    Busy,
    DiskFailed,
    DiskFull,
    HeadraceError,
    NoPermission,
    NotALog,
    NotFound,
)

BytesLike = bytes | bytearray | memoryview
_IOV_MAX = 1024
_TAKE_BLOCKS = 0x40305828
"""Linux, FS_IOC_RESVSP: fallocate(FALLOC_FL_KEEP_SIZE), for which Python has no function."""
_SPACE = struct.Struct("hhqq24x")


class File:
    """An open file with positional reads and writes; several threads may use it at once."""

    fd = -1

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    def write(self, parts: Sequence[BytesLike], offset: int) -> int:
        """Write all of `parts` one after another from `offset`; the number of bytes written."""
        try:  # not _translated: this is called for every append, and a generator costs more than it
            if len(parts) <= _IOV_MAX:
                return self._write_all(parts, offset) - offset
            start = offset
            for at in range(0, len(parts), _IOV_MAX):
                offset = self._write_all(parts[at : at + _IOV_MAX], offset)
            return offset - start
        except OSError as error:
            raise error_for(error, self.path) from error

    def write_one(self, data: BytesLike, offset: int) -> int:
        """`write` for what is in one piece: the same promise, at half the cost."""
        try:
            written = os.pwrite(self.fd, data, offset)
        except OSError as error:
            raise error_for(error, self.path) from error
        if written < len(data):
            self.write((memoryview(data)[written:],), offset + written)
        return len(data)

    def _write_all(self, parts: Sequence[BytesLike], offset: int) -> int:
        wanted = sum([part.nbytes if part.__class__ is memoryview else len(part) for part in parts])
        written = os.pwritev(self.fd, parts, offset)
        while written < wanted:  # a signal or a nearly full disk: go on after what was taken
            rest = memoryview(b"".join(parts))[written:]
            taken = os.pwrite(self.fd, rest, offset + written)
            if taken == 0:
                raise OSError(errno.EIO, "the disk took no bytes")
            written += taken
        return offset + wanted

    def read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""
        with _translated(self.path):
            data = os.pread(self.fd, size, offset)
            while len(data) < size and (more := os.pread(self.fd, size - len(data), offset + len(data))):
                data += more
            return data

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def linked(self) -> bool:
        """Whether some directory entry still names this very file."""
        return os.fstat(self.fd).st_nlink > 0

    def sync(self) -> None:
        """Any failure is a DiskFailed, a full disk too: what was written before is in doubt for good."""
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise sync_failed(self.path, error) from error

    def restrict(self) -> None:
        """Only its owner may read and change it."""
        with _translated(self.path):
            os.fchmod(self.fd, 0o600)

    def truncate(self, size: int) -> None:
        with _translated(self.path):
            os.ftruncate(self.fd, size)

    def allocate(self, size: int, start: int = 0) -> None:
        """Make it `size` bytes large, with room on the disk from `start` on, reading as zeros."""
        with _translated(self.path):
            os.posix_fallocate(self.fd, start, size - start)

    def take_blocks(self, size: int, start: int) -> None:
        """Have room on the disk for what is between `start` and `size`; the file stays as large as it is."""
        with _translated(self.path):
            fcntl.ioctl(self.fd, _TAKE_BLOCKS, _SPACE.pack(0, os.SEEK_SET, start, size - start))

    def map(self, size: int) -> mmap.mmap:
        with _translated(self.path):
            return mmap.mmap(self.fd, size, prot=mmap.PROT_READ)

    def try_lock(self) -> bool:
        """Take the exclusive advisory lock of this open file, unless someone else has it."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def lock(self) -> None:
        """Take the exclusive advisory lock, waiting for whoever has it."""
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Let the lock go even if a forked child still has the file open."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1  # first: closed once more, the number could be another file's
            os.close(fd)

    def __del__(self) -> None:
        """A file replaced while another thread still syncs it is closed when that thread lets go."""
        self.close()


class Disk:
    """The real disk. Tests subclass it and `File` to do harm."""

    file_class = File

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        with _translated(path):
            return self.file_class(path, os.open(path, flags, 0o666))

    def names(self, directory: Path) -> list[str]:
        with _translated(directory):
            return sorted(os.listdir(directory))

    def kind(self, path: Path) -> Literal["directory", "file", "nothing"]:
        """What is at `path`."""
        if "\0" in str(path):
            raise BadName(f"a path cannot contain a NUL: {str(path)!r}")
        with _translated(path):
            try:
                mode = os.stat(path).st_mode
            except (FileNotFoundError, NotADirectoryError):
                return "nothing"
        return "directory" if stat.S_ISDIR(mode) else "file"

    def size(self, path: Path) -> int:
        with _translated(path):
            return path.stat().st_size

    def state(self, path: Path) -> tuple[int, ...] | None:
        """What changes when the file does, its owner or its mode; None if there is none."""
        with _translated(path):
            try:
                found = os.stat(path)
            except FileNotFoundError:
                return None
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def make_directory(self, path: Path) -> None:
        with _translated(path):
            path.mkdir(parents=True, exist_ok=True)

    def make_directories(self, path: Path) -> None:
        """Make a directory, and those above it that are missing, durably: a crash takes away none of them."""
        missing = [each for each in (path, *path.parents) if self.kind(each) == "nothing"]
        for directory in reversed(missing):
            self.make_directory(directory)
        for directory in missing or [path]:  # one that is there may be what a crash left of making it
            self.sync_dir(directory.parent)

    def rename(self, old: Path, new: Path) -> None:
        with _translated(old):
            os.rename(old, new)

    def remove(self, path: Path) -> None:
        with _translated(path):
            path.unlink(missing_ok=True)

    def sync_dir(self, directory: Path) -> None:
        """Make names durable that have changed already: so what cannot be done here is never Busy."""
        with _translated(directory):
            try:
                fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise sync_failed(directory, error) from error
                raise
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def read_whole(self, path: Path) -> bytes:
        with self.opened(path) as file:
            return file.read(file.size(), 0)

    def replace_whole(self, path: Path, content: BytesLike, *, private: bool = False) -> None:
        """Make `path` hold `content`, durably: a crash leaves the old content or the new one.

        `private`: nobody but its owner can read it, at no moment.
        """
        temporary = path.with_name(path.name + ".tmp")
        with self.opened(temporary, write=True, create=True) as file:
            file.truncate(0)
            if private:
                file.restrict()
            file.write([content], 0)
            file.sync()
        self.rename(temporary, path)
        self.sync_dir(path.parent)

    @contextmanager
    def opened(self, path: Path, *, write: bool = False, create: bool = False) -> Iterator[File]:
        file = self.open(path, write=write, create=create)
        try:
            yield file
        finally:
            file.close()


def error_for(error: OSError, path: Path) -> HeadraceError:
    """The error of ours that tells a person what this OSError means."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(f"no room on the disk for {path}: free some and try again")
        case errno.EMFILE | errno.ENFILE:
            return Busy(
                f"as many files are open as may be ({reason}), and {path} is one too many: "
                "try again later, or allow more (`ulimit -n`, or LimitNOFILE= of the unit)"
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return NoPermission(f"not allowed to open or change {path} ({reason}): check who owns it")
        case errno.ENAMETOOLONG:
            return BadName(f"the path {str(path)[:60]}… is too long: choose a shorter one")
        case errno.ENOENT:
            return NotFound(f"{path} does not exist")
        case errno.ENOTDIR | errno.EISDIR | errno.EEXIST:
            return NotALog(f"{path} is not what it should be ({reason}): choose another path")
    return DiskFailed(f"the disk failed at {path} ({reason}): reopen the log once the disk is well")


def sync_failed(path: Path, error: OSError) -> DiskFailed:
    return DiskFailed(
        f"syncing {path} failed ({error.strerror}): what was not acknowledged yet may be lost; reopen the log"
    )


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise error_for(error, path) from error
