"""Ranges: which entries of a stream a command is about, and which of their columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa
import typer

from headrace.cli.console import Advance, Console
from headrace.cli.log_read import at_most, damage_explained
from headrace.kernel.errors import SchemaMismatch
from headrace.log import Batch
from headrace.log.cursor import OnDamage
from headrace.stream import Stream, at_key
from headrace.stream.key_text import parse_key
from headrace.stream.places import Place

Columns = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Only these fields, in this order.", show_default="all"),
]


@dataclass(frozen=True, slots=True)
class Range:
    """The options that choose entries."""

    start: Annotated[str, typer.Option("--from", metavar="INDEX|start|end", help="Begin at this index.")] = (
        "start"
    )
    from_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Begin at the first entry with at least this order key."),
    ] = None
    until: Annotated[int | None, typer.Option(min=0, metavar="INDEX", help="End before this index.")] = None
    until_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="End before the first entry with at least this order key."),
    ] = None
    count: Annotated[int | None, typer.Option(min=0, metavar="N", help="At most so many entries.")] = None

    def read(
        self,
        stream: Stream,
        columns: list[str] | None,
        console: Console,
        advance: Advance,
        on_damage: OnDamage | None = None,
    ) -> Iterator[Batch]:
        """The batches of the range; damage raises, or is given to `on_damage` and read over."""
        start, until = self._places(stream, console)
        batches = stream.listen_batches(start, until=until, columns=columns, on_damage=on_damage)
        first: int | None = None
        stop = stream.next_index if self.until is None else min(self.until, stream.next_index)
        with damage_explained(stream.log.path):
            for batch in at_most(self.count, batches):
                first = batch.base_index if first is None else first
                end = stop if self.count is None else min(stop, first + self.count)
                yield batch
                advance(batch.next_index - first, max(end - first, 1))

    def _places(self, stream: Stream, console: Console) -> tuple[Place, Place]:
        if self.from_key is not None and self.start != "start":
            raise typer.BadParameter("give --from or --from-key, not both", param_hint="--from")
        if self.until_key is not None and self.until is not None:
            raise typer.BadParameter("give --until or --until-key, not both", param_hint="--until")
        start: Place = _parse_place(self.start)
        if self.from_key is not None:
            start = at_key(parse_key(self.from_key, stream, console.note))
        if self.until_key is not None:
            return start, at_key(parse_key(self.until_key, stream, console.note))
        return start, self.until


def chosen_columns(text: str | None, schema: pa.Schema) -> list[str] | None:
    """The columns that `--columns` names, each there and named once; None: all of them."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in schema.names:
            raise SchemaMismatch(f"the stream has no field {name!r}: it has {', '.join(schema.names)}")
        if names.count(name) > 1:
            raise typer.BadParameter(f"{name!r} is named twice", param_hint="--columns")
    if not names:
        raise typer.BadParameter("it names no field", param_hint="--columns")
    return names


def projected(schema: pa.Schema, columns: list[str] | None) -> pa.Schema:
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _parse_place(text: str) -> Place:
    match text:
        case "start" | "end":
            return text
        case _ if text.isascii() and text.isdigit():
            return int(text)
    raise typer.BadParameter(f"{text!r} is not an index, 'start' or 'end'", param_hint="--from")
