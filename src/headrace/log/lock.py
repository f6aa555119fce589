"""The writer's lock: one writer a log, in any process, and a way to take it from one that hangs.

`lock` is a file with an advisory lock (flock) on it; the kernel releases it when its holder dies. Its
text says who holds it, for the error message.

Taking over does not wait for the holder: a new file is locked and renamed over `lock`. The old holder
still has its lock, but on a file that no name points to any more, and that is how it learns: it checks
`held` after every sync, before anything is acknowledged. The new writer copies the active segment to a
file of its own *after* the rename, hence:

    old holder:  write, sync, held? yes -> acknowledged   ...then the copy, made later, has the write
    new holder:  rename the lock, copy the segment        ...else held says no, and nothing is acknowledged

A write that the old holder had under way lands in a file that nobody reads.

A forked child of the holder has the same lock, and holds nothing: the log is its parent's.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from headrace.kernel.errors import HeadraceError, WriterTaken
from headrace.log.disk import Disk, File
from headrace.log.forks import stays_with_parent

LOCK_FILE = "lock"


class WriterLock:
    def __init__(self, file: File) -> None:
        self._file = file
        self._ours = True
        stays_with_parent(self)

    def left_to_parent(self) -> None:
        self._ours = False

    @classmethod
    def acquire(cls, disk: Disk, directory: Path, *, take_over: bool = False) -> WriterLock:
        """Hold the log, or raise WriterTaken saying who does."""
        path = directory / LOCK_FILE
        while True:
            file = disk.open(path, write=True, create=True)
            if file.try_lock():
                if file.linked():
                    return cls._signed(file)
                file.close()  # renamed over between opening and locking: look at the new one
                continue
            if not take_over:
                holder = file.read(200, 0).decode(errors="replace").strip() or "another writer"
                file.close()
                raise WriterTaken(
                    f"{directory} is being written by {holder}: close that writer first, or take over from it"
                )
            file.close()
            return cls._seized(disk, path)

    @classmethod
    def _seized(cls, disk: Disk, path: Path) -> WriterLock:
        temporary = path.with_name(f"{LOCK_FILE}.{os.getpid()}.tmp")
        file = disk.open(temporary, write=True, create=True)
        if not file.try_lock():
            file.close()
            raise WriterTaken(f"{path.parent} is being taken over by another thread of this process")
        try:
            disk.rename(temporary, path)
            disk.sync_dir(path.parent)
        except HeadraceError:
            file.close()
            raise
        return cls._signed(file)

    @classmethod
    def _signed(cls, file: File) -> WriterLock:
        try:
            file.truncate(0)
            file.write([f"process {os.getpid()} on {socket.gethostname()}\n".encode()], 0)
        except HeadraceError:
            file.close()  # at once: whoever looks at the error may try again
            raise
        return cls(file)

    @property
    def held(self) -> bool:
        """False once another writer has taken over, and in a forked child."""
        return self._ours and self._file.linked()

    def release(self) -> None:
        if self._ours:
            self._file.unlock()
        self._file.close()
