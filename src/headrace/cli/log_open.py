"""Opening a log for a command: the path argument, and errors that say what to type next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from headrace.kernel.errors import NotALog, NotFound, Refused, SchemaMismatch
from headrace.log import Log
from headrace.log.meta import META_FILE
from headrace.log.queue import RAW_SCHEMA

LogPath = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="The log: a directory.", show_default=False, readable=False),
]
"""Not asked whether it is readable: opening it tells, with the code that this error has everywhere."""
SkipDamaged = Annotated[
    bool, typer.Option("--skip-damaged", help="Tell of damage on stderr, read on, and end with exit code 3.")
]


def open_to_read(path: Path) -> Log:
    """The log at `path`, which nothing is done to."""
    _check_exists(path)
    return Log.open(path, read_only=True)


def open_to_write(path: Path) -> Log:
    """The log at `path`, held and recovered."""
    _check_exists(path)
    return Log.open(path)


def is_raw(schema: pa.Schema) -> bool:
    """Whether a log's entries are plain bytes."""
    return bool(schema.equals(RAW_SCHEMA))


def check_raw(log: Log) -> None:
    if not is_raw(log.schema):
        fields = ", ".join(log.schema.names)
        raise SchemaMismatch(f"{log.path} is a typed log ({fields}): classic slabs hold plain bytes only")


def check_free(path: Path) -> None:
    """Raise Refused unless something new can be made at `path`."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if (path / META_FILE).exists():
        raise Refused(f"{path} is a log already: choose a path where nothing is")
    if path.exists() or path.is_symlink():
        raise NotALog(f"{path} is there already: choose a path where nothing is")


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise NotFound(f"there is no log at {path}: check the path, or make one with `headrace log create`")
