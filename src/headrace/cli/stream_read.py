"""`headrace stream cat` and `tail`: entries to stdout.

In JSON an entry of a union has its class in `_type`, and the fields that are null are left out: what is
stored does not tell which of them its class has.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.cli.console import Console
from headrace.cli.log_open import SkipDamaged
from headrace.cli.log_read import Damages, Index
from headrace.cli.options import Json, with_options
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, StreamName, is_raw, is_union, opened_stream
from headrace.cli.stream_output import Format, chosen_format, make_output
from headrace.cli.stream_range import Columns, Range, chosen_columns, projected


@with_options
def cat(
    name: StreamName,
    range: Range,  # noqa: A002
    columns: Columns = None,
    format: Format = None,  # noqa: A002
    index: Index = False,
    skip_damaged: SkipDamaged = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Print entries, oldest first.

    Keys of streams ordered by time are ISO 8601, such as 2024-07-01T12:00:00Z; without a zone they are UTC.
    """
    console, damages = Console(json), Damages(Console(json))
    with opened_stream(store, name) as stream:
        chosen = chosen_columns(columns, stream.schema)
        form = chosen_format(format, json, raw=is_raw(stream))
        schema = projected(stream.schema, chosen)
        output = make_output(console, schema, form, index=index, sparse=is_union(stream))
        try:
            with console.progress("reading", wanted=not sys.stdout.isatty()) as advance:
                on_damage = damages if skip_damaged else None
                for batch in range.read(stream, chosen, console, advance, on_damage):
                    output.print(batch)
        finally:
            output.end()
    damages.end()


def tail(
    name: StreamName,
    count: Annotated[int, typer.Option("-n", min=0, metavar="N", help="So many of the last entries.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until interrupted.")] = False,
    columns: Columns = None,
    format: Format = None,  # noqa: A002
    index: Index = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Print the last entries.

    Damage among them is told on stderr and passed over; the exit code is then 3.
    """
    console, damages = Console(json), Damages(Console(json))
    if follow and format == "table":
        raise typer.BadParameter("a table must end before it is printed: take jsonl", param_hint="--format")
    with opened_stream(store, name) as stream:
        chosen = chosen_columns(columns, stream.schema)
        form = chosen_format(format, json, raw=is_raw(stream), live=follow)
        schema = projected(stream.schema, chosen)
        output = make_output(console, schema, form, index=index, sparse=is_union(stream))
        info = stream.info()
        start = max(info.first_index, info.next_index - count)
        try:
            for batch in stream.listen_batches(start, follow=follow, columns=chosen, on_damage=damages):
                output.print(batch, flush=follow)
        finally:
            output.end()
    damages.end()
