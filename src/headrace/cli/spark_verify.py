"""`headrace spark verify`: `headrace stream verify` with many cores or machines, and for all streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from headrace.cli.console import Console, Exit, printable
from headrace.cli.log_care import tell_report
from headrace.cli.options import Json, with_options
from headrace.cli.spark_open import SparkOptions, Where, opened_spark, spark_installed

if TYPE_CHECKING:
    from headrace.spark.verify import Verified

_COLUMNS = ("name", "state", "entries", "batches", "segments", "bytes")


@with_options
def verify(
    spark: SparkOptions,
    where: Where,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The stream's name.", show_default="all streams")
    ] = None,
    json: Json = False,
) -> None:
    """Read and check every byte of a stream, or of all streams.

    What is damaged, and exactly which entries are lost, is listed; the exit code is then 3.
    """
    console = Console(json)
    with spark_installed():
        from headrace.spark.verify import verify as run_verify
    place = where.place() if name is None else where.check_stream(name)
    with opened_spark(where.given, spark) as session, console.progress("verifying") as advance:
        found = run_verify(session, place, name, progress=advance)
    if name is not None:
        told = found.paths[name] if where.url else Path(where.store, "streams", name)
        tell_report(console, told, found.reports[name])
    else:
        _tell_all(console, where.given, found)


def _tell_all(console: Console, store: Path | str, found: Verified) -> None:
    for name, error in found.unreadable.items():
        console.note(f"stream {name!r} cannot be opened ({error.code}): {error}")
    if console.json:
        streams = [
            {"name": name, "path": printable(found.paths[name]), **msgspec.to_builtins(report)}
            | {"ok": report.ok, "lost": [list(pair) for pair in report.lost]}
            for name, report in found.reports.items()
        ]
        console.answer({"store": printable(store), "ok": found.ok, "streams": streams}, "")
    elif found.reports:
        rows = [
            (name, "whole" if r.ok else "damaged", r.entries, r.batches, r.segments, r.bytes)
            for name, r in found.reports.items()
        ]
        console.table(_COLUMNS, rows)
        lines = [f"{name}: {damage}" for name, r in found.reports.items() for damage in r.damages]
        console.write("".join(f"{printable(line)}\n" for line in lines).encode())
    elif found.ok:
        console.note(f"{store} has no streams yet")
    if not found.ok:
        raise typer.Exit(Exit.DAMAGE)
