"""`headrace stream publish`: the rows of a file, or of a pipe, become entries.

The input is read block by block, and each block is published as one batch, all of it or nothing; where the
stream is in containers, blocks are so small that they fit one. So when a row does not fit, what was published
ends at the block before, and the error says how many entries that were.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.console import Advance, Console, printable
from headrace.cli.misfit import find_misfit
from headrace.cli.options import Json
from headrace.cli.quantities import format_count, plural
from headrace.cli.row_files import FileFormat, guess_format, open_rows, opened_file
from headrace.cli.rows import RowFile, Rows
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, StreamName, is_raw, opened_store, stream_of
from headrace.kernel.errors import HeadraceError, KeyOrder, SchemaMismatch
from headrace.log.queue import RAW_SCHEMA
from headrace.store import Store, open_store
from headrace.stream import BadEntry, Published, Publisher, Stream
from headrace.stream.agreement import StreamConfig


def publish(
    name: StreamName,
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="What to publish.", show_default="stdin")
    ] = "-",
    format: Annotated[  # noqa: A002
        FileFormat | None,
        typer.Option(help="What the input is.", show_default="by the suffix; jsonl, or lines of plain bytes"),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the stream, if there is none, with the input's fields.")
    ] = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Publish the rows of a file: JSON lines, CSV, Parquet or Arrow.

    It is published in large batches, each all or none. Entries whose unique id is in the stream already are
    left out and counted. All is durable when this ends, as the stream's durability says.
    """
    console, tally = Console(json), Tally()
    with opened_file(file) as source, _store(store, create) as opened:
        new = create and name not in opened.streams()
        stream = None if new else stream_of(opened, name)
        raw = stream is not None and is_raw(stream)
        otherwise: FileFormat | None = "lines" if raw else "jsonl" if file == "-" else None
        rows = open_rows(source, file, format or guess_format(file, otherwise))
        if stream is None:
            stream = _created(opened, name, rows)
        started = time.perf_counter()
        with (
            stream.publisher() as publisher,
            _telling(tally, console),
            console.progress("publishing") as advance,
        ):
            _publish_all(rows, stream, publisher, tally, advance)
        seconds = max(time.perf_counter() - started, 1e-9)
    _answer(console, name, tally, seconds)


@dataclass(slots=True)
class Tally:
    """What was published so far."""

    first_index: int | None = None
    count: int = 0
    duplicates: int = 0
    first_duplicate: str = ""

    def add(self, published: Published, rows: Rows, unit: str) -> None:
        if self.first_index is None:
            self.first_index = published.base_index
        if published.duplicates and not self.duplicates:
            self.first_duplicate = f"{unit} {rows.numbers[published.duplicates[0]]}"
        self.count += published.next_index - published.base_index
        self.duplicates += len(published.duplicates)

    def __str__(self) -> str:
        if not self.count:
            return "nothing was published"
        what = "1 entry was" if self.count == 1 else f"{format_count(self.count)} entries were"
        return f"{what} published before, from index {self.first_index} on"


def _publish_all(
    source: RowFile, stream: Stream, publisher: Publisher, tally: Tally, advance: Advance
) -> None:
    containers = stream.log.settings.containers
    portion_bytes = containers.portion_bytes if containers else None
    blocks = source.rows(stream.schema)
    for rows in (portion for block in blocks for portion in block.portions(portion_bytes)):
        try:
            published = publisher.publish_batch(rows.records)
        except (SchemaMismatch, BadEntry, KeyOrder) as error:
            error.args = (_explained(error, rows, stream, source.unit),)
            raise
        tally.add(published, rows, source.unit)
        done, total = source.progress()
        if total:
            advance(done, total)
    publisher.flush()


def _explained(error: HeadraceError, rows: Rows, stream: Stream, unit: str) -> str:
    """Why a batch was refused, with the row in the file that is to blame."""
    misfit = find_misfit(rows.records, stream)
    if misfit is not None:
        row, field, reason = misfit
        return f"{unit} {rows.numbers[row]}, field {field!r}: {reason}"
    first, last = rows.numbers[0], rows.numbers[-1]
    # The first key may be behind HEAD: nothing is wrong with the batch in itself.
    where = f"{unit} {first}" if isinstance(error, KeyOrder) else f"{unit}s {first} to {last}"
    return f"{where}: {error}"


@contextmanager
def _telling(tally: Tally, console: Console) -> Iterator[None]:
    """Whatever ends the block says how many entries were published before."""
    try:
        yield
    except HeadraceError as error:
        error.args = (f"{error}; {tally}",)
        raise
    except KeyboardInterrupt:
        console.note(str(tally))
        raise


@contextmanager
def _store(path: Path, create: bool) -> Iterator[Store]:
    with open_store(path) if create else opened_store(path) as store:
        yield store


def _created(store: Store, name: str, rows: RowFile) -> Stream:
    schema = rows.schema()
    return store.create(name, StreamConfig(bytes if schema is RAW_SCHEMA else schema))


def _answer(console: Console, name: str, tally: Tally, seconds: float) -> None:
    rate = round(tally.count / seconds)
    facts: dict[str, Any] = {
        "name": printable(name),
        "first_index": tally.first_index,
        "count": tally.count,
        "duplicates": tally.duplicates,
        "first_duplicate": tally.first_duplicate or None,
        "seconds": round(seconds, 6),
        "entries_per_second": rate,
    }
    text = f"published {plural(tally.count, 'entry', 'entries')}"
    if tally.count:
        text += f" from index {tally.first_index} on, {format_count(rate)} a second"
    if tally.duplicates:
        left_out = plural(tally.duplicates, "duplicate")
        text += f"; {left_out} left out, the first at {tally.first_duplicate}"
    console.answer(facts, text)
