"""`headrace spark compact`: the latest entry for each value of a field, as a new stream."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headrace.cli.console import Console
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import plural
from headrace.cli.spark_open import SparkOptions, Where, opened_spark, spark_installed
from headrace.cli.stream_open import StreamName


@with_options
def compact(
    name: StreamName,
    into: Annotated[str, typer.Argument(metavar="INTO", help="The new stream's name.", show_default=False)],
    by: Annotated[str, typer.Option(metavar="FIELD", help="Keep the latest entry for each value of it.")],
    spark: SparkOptions,
    where: Where,
    json: Json = False,
) -> None:
    """Make a new stream of the latest entry for each value of a field.

    The new stream has the type and the order of the old one, which stays as it is. It appears as a whole.
    """
    console = Console(json)
    with spark_installed():
        from headrace.spark.compact import check_compact
        from headrace.spark.compact import compact as run_compact
    place = where.check_stream(name)
    check_compact(place, name, into, by)
    with opened_spark(where.given, spark) as session, console.progress("compacting") as advance:
        done = run_compact(session, place, name, into, by=by, progress=advance)
    text = (
        f"compacted {plural(done.read, 'entry', 'entries')} of {name!r} by {by}: "
        f"{plural(done.entries, 'entry remains', 'entries remain')} in {into!r}"
    )
    console.answer(msgspec.to_builtins(done), text)
