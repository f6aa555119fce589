"""`headrace log cat` and `tail`: entries to stdout.

Plain bytes come out as they are, one record a line; typed entries and everything under `--json` as JSON
lines (`json_lines` tells their form). A table is for eyes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pyarrow as pa
import typer

from headrace.cli.console import Console, Exit
from headrace.cli.log_open import LogPath, SkipDamaged, is_raw, open_to_read
from headrace.cli.options import Json
from headrace.log import Batch, Damage, DamagedEntries
from headrace.wire.json_rows import column_values, rows_of

Format = Literal["lines", "json", "table"]
Index = Annotated[bool, typer.Option("--index", help="Say each entry's index as well.")]

_ROWS_AT_ONCE = 1 << 14
"""A batch can be a gigabyte: as Python objects it would be ten."""

_TABLE_ROWS_MAX = 1000
"""A table's columns are as wide as its widest cell, so it must end before it can be printed."""


def cat(
    path: LogPath,
    start: Annotated[int, typer.Option("--from", min=0, metavar="INDEX", help="Begin here.")] = 0,
    until: Annotated[int | None, typer.Option(min=0, metavar="INDEX", help="End before this.")] = None,
    count: Annotated[int | None, typer.Option(min=0, metavar="N", help="At most so many entries.")] = None,
    skip_damaged: SkipDamaged = False,
    format: Annotated[Format, typer.Option(help="Lines are raw bytes, or JSON if typed.")] = "lines",  # noqa: A002
    index: Index = False,
    json: Json = False,
) -> None:
    """Print entries, oldest first."""
    if json and format == "table":
        raise typer.BadParameter("give --json or --format table, not both", param_hint="--format")
    console, damages = Console(json), Damages(Console(json))
    with (
        open_to_read(path) as log,
        console.progress("reading", wanted=not sys.stdout.isatty()) as advance,
    ):
        printer = Printer(console, log.schema, "json" if json else format, index)
        info = log.info()
        stop = info.next_index if until is None else min(until, info.next_index)
        try:
            with damage_explained(path):
                batches = log.read(start, until, on_damage=damages if skip_damaged else None)
                for batch in at_most(count, batches):
                    printer.print(batch)
                    advance(batch.next_index - info.first_index, max(stop - info.first_index, 1))
        finally:
            printer.end()
    damages.end()


def tail(
    path: LogPath,
    count: Annotated[int, typer.Option("-n", min=0, metavar="N", help="So many of the last entries.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until interrupted.")] = False,
    index: Index = False,
    json: Json = False,
) -> None:
    """Print the last entries.

    Damage among them is told on stderr and passed over; the exit code is then 3.
    """
    console, damages = Console(json), Damages(Console(json))
    with open_to_read(path) as log:
        printer = Printer(console, log.schema, "json" if json else "lines", index)
        info = log.info()
        start = max(info.first_index, info.next_index - count)
        for batch in log.read(start, follow=follow, on_damage=damages):
            printer.print(batch.slice(start), flush=follow)
    damages.end()


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """Errors of damage in this block say what to type next."""
    try:
        yield
    except DamagedEntries as error:
        advice = "read on with --skip-damaged, or see `headrace log repair`"
        error.args = (f"{path}: {error.damage}: {advice}",)
        raise


class Damages:
    """Tells of each damage when it is met, and remembers for the exit code that there was one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.found: list[Damage] = []

    def __call__(self, damage: Damage) -> None:
        self.found.append(damage)
        self._console.damage(damage)

    def end(self) -> None:
        if self.found:
            raise typer.Exit(Exit.DAMAGE)


class Printer:
    """Prints batches of one log in one format.

    A table says each entry's index, unless rows are not `numbered`; `sparse` leaves out of JSON what is null.
    """

    def __init__(
        self,
        console: Console,
        schema: pa.Schema,
        form: Format,
        with_index: bool,
        *,
        numbered: bool = True,
        sparse: bool = False,
    ) -> None:
        if with_index and "index" in schema.names and form != "table":
            raise typer.BadParameter("the log has a field of that name itself", param_hint="--index")
        self._console = console
        self._raw_lines = form == "lines" and is_raw(schema)
        self._table = form == "table"
        self._with_index = with_index
        self._sparse = sparse
        self._encoder = msgspec.json.Encoder()
        self._numbered = numbered
        self._columns = ["index", *schema.names] if numbered else schema.names
        self._rows: list[tuple[object, ...]] = []

    def print(self, batch: Batch, *, flush: bool = False) -> None:
        if not batch.records.num_rows:
            return
        for start in range(batch.base_index, batch.next_index, _ROWS_AT_ONCE):
            part = batch.slice(start, start + _ROWS_AT_ONCE)
            if self._table:
                self._gather(part)
            else:
                text = self._raw(part) if self._raw_lines else self._json(part)
                self._console.write(text, flush=flush)

    def _raw(self, batch: Batch) -> bytes:
        records: list[bytes] = batch.records.column(0).to_pylist()
        if self._with_index:
            records = [b"%d\t%s" % (at, data) for at, data in enumerate(records, batch.base_index)]
        return b"\n".join(records) + b"\n"

    def _json(self, batch: Batch) -> bytes:
        rows = rows_of(batch.records, sparse=self._sparse)
        if self._with_index:
            rows = [{"index": at, **row} for at, row in enumerate(rows, batch.base_index)]
        return self._encoder.encode_lines(rows)

    def _gather(self, batch: Batch) -> None:
        columns = [column_values(column) for column in batch.records.columns]
        if self._numbered:
            columns.insert(0, list(range(batch.base_index, batch.next_index)))
        for row in zip(*columns, strict=True):
            self._rows.append(row)
            if len(self._rows) == _TABLE_ROWS_MAX:
                self.end()

    def end(self) -> None:
        """Print what waits for its table to be full."""
        if self._rows:
            self._console.table(self._columns, self._rows)
            self._rows = []


def at_most(count: int | None, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, up to so many entries."""
    left = count
    for batch in batches if left != 0 else ():
        if left is not None:
            batch = batch.slice(batch.base_index, batch.base_index + left)
            left -= batch.records.num_rows
        yield batch
        if left == 0:
            return
