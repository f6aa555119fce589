"""`headrace spark archive`: a stream as Parquet files, divided by day."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from headrace.cli.console import Console, printable
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import format_size, parse_duration, plural
from headrace.cli.spark_open import SparkOptions, Where, opened_spark, spark_installed
from headrace.cli.stream_open import StreamName

if TYPE_CHECKING:
    from headrace.spark.archive import Archived


@dataclass(frozen=True, slots=True)
class Following:
    """Whether to go on for ever, and how often."""

    follow: Annotated[bool, typer.Option("--follow", "-f", help="Archive what comes, until interrupted.")] = (
        False
    )
    every: Annotated[
        float, typer.Option(parser=parse_duration, metavar="TIME", help="With --follow: so often.")
    ] = "1m"  # type: ignore[assignment]


@with_options
def archive(
    name: StreamName,
    to: Annotated[Path, typer.Option(metavar="DIR", help="The archive: a folder.", show_default=False)],
    spark: SparkOptions,
    where: Where,
    following: Following,
    by: Annotated[
        Literal["day", "hour", "none"] | None,
        typer.Option(help="How it is divided.", show_default="day, or none without times"),
    ] = None,
    with_index: Annotated[
        bool, typer.Option("--with-index", help="Add each entry's index as a column _index.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring an archive of Parquet files up to the end of a stream.

    Every entry is in exactly one file, whatever happens. Run it again, and it goes on where it was; what is
    not archived yet is kept by retention. Days are those of the order key, in UTC.
    """
    console = Console(json)
    with spark_installed():
        from headrace.spark.archive import Archiver
    place = where.check_stream(name)
    with (
        Archiver(place, name, to=to, by=by, with_index=with_index or None) as archiver,
        opened_spark(where.given, spark) as session,
    ):
        if following.follow:
            archiver.follow(session, following.every, lambda done: _tell(console, done))
        with console.progress("archiving") as advance:
            done = archiver.catch_up(session, advance)
    _tell(console, done)


def _tell(console: Console, done: Archived) -> None:
    facts = msgspec.to_builtins(done) | {"to": printable(done.to)}
    text = (
        f"archived {plural(done.entries, 'entry', 'entries')} of {done.stream!r} to {done.to}: "
        f"{plural(done.files, 'file')}, {format_size(done.bytes)}; the next index is {done.next_index}"
        if done.next_index > done.first_index
        else f"nothing new: {done.to} holds all of {done.stream!r} up to index {done.next_index}"
    )
    console.answer(facts, text)
    sys.stdout.flush()
