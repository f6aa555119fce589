"""Small logs for small scenes: appending to them, and finding the frames in their files."""

from __future__ import annotations

from pathlib import Path

from headrace.log import Log
from headrace.log.frame import decode_header

from .entries import Entry, batch_of


def entries(start: int, count: int, generation: int = 1, size: int = 10) -> list[Entry]:
    return [Entry(index, generation, index, size) for index in range(start, start + count)]


def append(log: Log, count: int, generation: int = 1, size: int = 10) -> list[Entry]:
    made = entries(log.next_index, count, generation, size)
    log.append(batch_of(made))
    return made


def as_dict(*parts: list[Entry]) -> dict[int, Entry]:
    return {entry.index: entry for part in parts for entry in part}


def segment(path: Path, ending: str) -> Path:
    return next(file for file in sorted(path.iterdir()) if file.name.endswith(ending))


def frame_offsets(log: Log, file: Path) -> list[tuple[int, int]]:
    """(offset, kind) of each frame of a whole segment."""
    raw, at, found = file.read_bytes(), 0, []
    while (header := decode_header(raw[at : at + 64], log.meta.salt)) is not None:
        found.append((at, header.kind))
        at += header.frame_bytes
    return found
