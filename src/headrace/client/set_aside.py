"""What a forwarder cannot send: refused requests and torn records, kept beside the spool with the reason."""

from __future__ import annotations

import base64
import errno
import json
import os
from pathlib import Path

REFUSED = "refused"


def set_aside(directory: Path, hour: int, offset: int, reason: str, raw: bytes) -> None:
    """One line of JSON in `refused/<hour>.jsonl`, on disk when this returns."""
    folder = directory / REFUSED
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        _sync_directory(directory)
    said = {"offset": offset, "reason": reason, "bytes": base64.b64encode(raw).decode()}
    line = json.dumps(said, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    path = folder / f"{hour}.jsonl"
    new = not path.exists()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        before = os.fstat(fd).st_size
        if os.write(fd, line) != len(line):  # a full disk: whoever asked keeps the record, and tries again
            os.ftruncate(fd, before)
            raise OSError(errno.ENOSPC, "only a part of a refused request was written", str(path))
        os.fdatasync(fd)
    finally:
        os.close(fd)
    if new:
        _sync_directory(folder)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
