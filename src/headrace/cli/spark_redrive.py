"""`headrace spark redrive`: dead jobs of a journal chosen and repaired by SQL, and put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.console import Console, printable
from headrace.cli.journal_shown import shown_data
from headrace.cli.journal_verbs import check_journal
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import plural
from headrace.cli.spark_open import SparkOptions, Where, opened_spark, spark_installed
from headrace.cli.stream_open import opened_store

if TYPE_CHECKING:
    from headrace.spark.redrive import Redriven

_COLUMNS = ("id", "resource", "becomes", "priority", "value")
_SHOWN = 20


@with_options
def redrive(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The journal's name.", show_default=False)],
    spark: SparkOptions,
    at: Where,
    where: Annotated[
        str, typer.Option(metavar="SQL", help="Which dead jobs: a condition over the view `journal`.")
    ] = "true",
    repair: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="COLUMN=SQL", help="Put it back with this resource, value or priority."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Put dead jobs back that SQL chooses, and repair them on the way.

    All of them are put in one operation, or none. A job that is not dead any more is passed over. The columns
    are id, resource, domain, state, priority, due, age, attempts, died, type, value (bytes) and text.

    Example: headrace spark redrive pages --where "attempts > 3" --set "value=upper(text)" --dry-run
    """
    console, changes = Console(json), _parse(repair or [])
    with spark_installed():
        from headrace.spark.redrive import check_repair
        from headrace.spark.redrive import redrive as run_redrive
    check_repair(changes)
    place = at.place()
    if at.url is None:
        with opened_store(at.store) as opened:
            check_journal(opened, name)
    with opened_spark(at.given, spark) as session, console.progress("redriving") as advance:
        done = run_redrive(
            session, place, name, where=where, repair=changes, dry_run=dry_run, progress=advance
        )
    _tell(console, done)


def _parse(repair: list[str]) -> dict[str, str]:
    changes: dict[str, str] = {}
    for text in repair:
        column, equals, sql = text.partition("=")
        if not equals or not column.strip() or not sql.strip():
            raise typer.BadParameter(f"{text!r} is not COLUMN=SQL", param_hint="--set")
        if column.strip() in changes:
            raise typer.BadParameter(f"{column.strip()!r} is set twice", param_hint="--set")
        changes[column.strip()] = sql
    return changes


def _tell(console: Console, done: Redriven) -> None:
    rows = [
        (job.id, printable(job.was), printable(job.resource), job.priority, shown_data(job.value))
        for job in done.chosen
    ]
    if not console.json and rows:
        console.table(_COLUMNS, rows[:_SHOWN])
    more = f", of which {_SHOWN} are shown" if len(rows) > _SHOWN else ""
    facts = {
        "name": done.journal,
        "chosen": len(rows),
        "put_back": done.put_back,
        "dry_run": done.dry_run,
        "jobs": [dict(zip(_COLUMNS, row, strict=True)) for row in rows],
    }
    text = (
        f"{plural(len(rows), 'dead job')} would be put back{more}"
        if done.dry_run
        else f"put {done.put_back} of {plural(len(rows), 'dead job')} back{more}"
    )
    console.answer(facts, text)
