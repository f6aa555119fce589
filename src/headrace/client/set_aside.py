"""What a forwarder cannot send: refused requests and torn records, kept beside the spool with the reason."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

REFUSED = "refused"


def set_aside(directory: Path, hour: int, offset: int, reason: str, raw: bytes) -> None:
    """One line of JSON in `refused/<hour>.jsonl`, on disk when this returns."""
    folder = directory / REFUSED
    folder.mkdir(exist_ok=True)
    said = {"offset": offset, "reason": reason, "bytes": base64.b64encode(raw).decode()}
    line = json.dumps(said, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    fd = os.open(folder / f"{hour}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, line)
        os.fdatasync(fd)
    finally:
        os.close(fd)
