"""Keeping: before anything that could be somebody's data is cut or replaced, a copy goes to `kept/`."""

from __future__ import annotations

from pathlib import Path

from headrace.kernel.clock import Clock
from headrace.log.disk import Disk

KEPT_DIRECTORY = "kept"


def keep_bytes(disk: Disk, directory: Path, name: str, content: bytes, clock: Clock) -> str:
    """Store `content` durably; its path, relative to the log."""
    path = _place(disk, directory, name, clock)
    disk.replace_whole(path, content)
    return str(path.relative_to(directory))


def keep_file(disk: Disk, directory: Path, name: str, clock: Clock) -> str:
    """Move a file of the log aside; its new path, relative to the log."""
    path = _place(disk, directory, name, clock)
    disk.rename(directory / name, path)
    disk.sync_dir(path.parent)
    disk.sync_dir(directory)
    return str(path.relative_to(directory))


def _place(disk: Disk, directory: Path, name: str, clock: Clock) -> Path:
    folder = directory / KEPT_DIRECTORY
    disk.make_directory(folder)
    disk.sync_dir(directory)
    path = folder / f"{name}.{clock.now_us()}"
    number = 1
    while path.exists():
        path = folder / f"{name}.{clock.now_us()}.{number}"
        number += 1
    return path
