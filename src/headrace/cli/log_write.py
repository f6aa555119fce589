"""`headrace log append` and `trim`: the verbs that change a log's two ends.

Lines of plain bytes are appended as they arrive, so a pipe that never ends works too. JSON lines are all
checked first and then appended as one atomic group: a wrong line anywhere means that nothing was appended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import pyarrow as pa
import typer

from headrace.cli.console import Console, printable
from headrace.cli.log_open import LogPath, is_raw, open_to_read, open_to_write
from headrace.cli.options import Json
from headrace.cli.quantities import format_size, plural
from headrace.log.meta import META_FILE
from headrace.log.queue import writer
from headrace.wire.json_lines import read_lines

_CHUNK_BYTES = 1 << 20


def append(
    path: LogPath,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="What to append.", show_default="stdin")
    ] = "-",
    whole: Annotated[bool, typer.Option("--whole", help="All of the input is one record.")] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Create a log of plain bytes if none is there.")
    ] = False,
    json: Json = False,
) -> None:
    """Append one record a line.

    A log of plain bytes takes lines as they are. A typed log takes JSON, all of it or, if a line is wrong,
    nothing. All is durable when this ends, as the log's durability says.
    """
    console = Console(json)
    with _opened(file) as source:
        new = create and not (path / META_FILE).exists()
        if new or is_raw(_schema_at(path)):
            first, count = _append_raw(path, source, whole, console)
        else:
            if whole:
                raise typer.BadParameter("only a log of plain bytes takes --whole", param_hint="--whole")
            first, count = _append_typed(path, source, console)
    where = f" from index {first} on" if count else ""
    facts = {"path": printable(path), "first_index": first, "count": count}
    console.answer(facts, f"appended {plural(count, 'entry', 'entries')}{where}")


def trim(
    path: LogPath,
    before: Annotated[
        int | None, typer.Option(min=0, metavar="INDEX", help="Remove what is below this index.")
    ] = None,
    retain: Annotated[bool, typer.Option("--retain", help="Remove what the log's retention allows.")] = False,
    json: Json = False,
) -> None:
    """Remove the oldest entries.

    Either those before an index, or what the log's own policy does not retain.
    """
    if (before is None) != retain:
        raise typer.BadParameter("give either --before or --retain", param_hint="--before")
    with open_to_write(path) as log:
        was = log.info()
        if before is None:
            log.retain()
        else:
            log.trim(before)
        now = log.info()
    removed = now.first_index - was.first_index
    freed = max(was.bytes - now.bytes, 0)
    facts = {
        "path": printable(path),
        "removed": removed,
        "first_index": now.first_index,
        "next_index": now.next_index,
        "freed_bytes": freed,
    }
    text = f"removed {plural(removed, 'entry', 'entries')}, freed {format_size(freed)}"
    Console(json).answer(facts, f"{text}: {path} begins at index {now.first_index}")


def _append_raw(path: Path, source: BinaryIO, whole: bool, console: Console) -> tuple[int, int]:
    with writer(path) as out, console.progress("appending") as advance:
        first, total = out.address, os.fstat(source.fileno()).st_size if source is not sys.stdin.buffer else 0
        if whole:
            out.write(source.read())
        else:
            done = 0
            for lines, size in _lines(source):
                out.write_many(lines)
                done += size
                advance(done, max(total, done))
        out.flush()
        return first, out.address - first


def _append_typed(path: Path, source: BinaryIO, console: Console) -> tuple[int, int]:
    with console.progress("reading"):
        table = read_lines(source, _schema_at(path))
    with open_to_write(path) as log:
        first = log.append(table)
        log.sync()
    return first, table.num_rows


def _lines(source: BinaryIO) -> Iterator[tuple[list[bytes], int]]:
    """The lines that are there as soon as they are there, with the number of bytes they were read from."""
    rest: list[bytes] = []  # the pieces of a line that has not ended yet
    while chunk := _read_some(source):
        *lines, last = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join([*rest, lines[0]])
            rest = []
        if last:
            rest.append(last)
        yield lines, len(chunk)
    if rest:
        yield [b"".join(rest)], 0


def _read_some(source: BinaryIO) -> bytes:
    read = getattr(source, "read1", source.read)  # read1 does not wait until all of it is there
    data: bytes = read(_CHUNK_BYTES)
    return data


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
    else:
        with Path(file).open("rb") as source:
            yield source


def _schema_at(path: Path) -> pa.Schema:
    with open_to_read(path) as log:
        return log.schema
