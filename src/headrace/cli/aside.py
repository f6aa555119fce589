"""Making a directory or a file aside, and putting it in its place once it is whole.

A command that fails or is interrupted half way leaves nothing where it was to write.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.cli.log_open import check_free
from headrace.log.disk import Disk


@contextmanager
def made_aside(target: Path) -> Iterator[Path]:
    """A path beside `target` to build a directory at; it becomes `target` if the block ends well."""
    check_free(target)
    disk = Disk()
    beside = target.with_name(f".{target.name}.unfinished")
    if beside.exists():
        shutil.rmtree(beside)  # of an earlier run that was killed
    try:
        yield beside
        disk.rename(beside, target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    disk.sync_dir(target.parent)


@contextmanager
def file_made_aside(target: Path) -> Iterator[Path]:
    """A path beside `target` to write a file at; it replaces `target` if the block ends well.

    Where `target` is a link, that is the file it leads to; where it is no file but a pipe or a device, there
    is nothing to replace, and it is written to as it is.
    """
    if target.exists() and not target.is_file():
        yield target
        return
    disk, target = Disk(), target.resolve()
    beside = target.with_name(f".{target.name}.unfinished")
    try:
        yield beside
        with beside.open("rb+") as written:
            os.fsync(written.fileno())
        disk.rename(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    disk.sync_dir(target.parent)
