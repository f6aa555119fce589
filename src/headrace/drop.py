"""Dropping: a directory with a log in it is gone at once, for everybody; then its files go.

It gets a name that nobody looks for, so that it is there whole or not at all. A crash after that leaves the
files under this name: `sweep` removes them.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from pathlib import Path

from headrace.kernel.errors import HeadraceError
from headrace.log.disk import Disk
from headrace.log.lock import WriterLock

_DROPPED = ".dropped-"


def drop(disk: Disk, path: Path, log: Path) -> None:
    """Remove the directory `path`, with the log in or at it; WriterTaken if somebody is writing that log."""
    lock = WriterLock.acquire(disk, log)
    gone = path.with_name(f"{_DROPPED}{path.name}-{uuid.uuid4().hex}")
    try:
        disk.rename(path, gone)
        disk.sync_dir(path.parent)
    finally:
        lock.release()
    shutil.rmtree(gone, ignore_errors=True)


def sweep(disk: Disk, folder: Path) -> None:
    """Remove what was dropped from this folder, and is still there."""
    with contextlib.suppress(HeadraceError):  # there is none, or it is not ours to change
        for name in disk.names(folder):
            if name.startswith(_DROPPED):
                shutil.rmtree(folder / name, ignore_errors=True)
