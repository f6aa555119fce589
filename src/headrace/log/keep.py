"""Keeping: before anything that could be somebody's data is cut or replaced, a copy goes to `kept/`."""

from __future__ import annotations

from pathlib import Path

from headrace.kernel.clock import Clock
from headrace.log.disk import Disk, File

KEPT_DIRECTORY = "kept"
_PIECE_BYTES = 1 << 20


def keep_part(
    disk: Disk, directory: Path, name: str, source: File, start: int, stop: int, clock: Clock
) -> str:
    """Store what `source` holds between two offsets durably; its path, relative to the log.

    Piece by piece: an unfinished group may be larger than memory.
    """
    path = _place(disk, directory, name, clock)
    temporary = path.with_name(path.name + ".tmp")
    with disk.opened(temporary, write=True, create=True) as target:
        target.truncate(0)
        for offset in range(start, stop, _PIECE_BYTES):
            piece = source.read(min(_PIECE_BYTES, stop - offset), offset)
            target.write([piece], offset - start)
        target.sync()
    disk.rename(temporary, path)
    disk.sync_dir(path.parent)
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
