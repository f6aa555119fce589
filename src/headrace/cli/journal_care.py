"""`headrace journal create` and `redrive`: how a journal is set, and a second chance for dead jobs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.console import Console, aligned, printable
from headrace.cli.journal_on_node import OnNode
from headrace.cli.journal_open import JournalName, Place
from headrace.cli.journal_verbs import check_journal, patient
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import parse_size, plural
from headrace.cli.stream_open import opened_store
from headrace.journal import Journal, JournalSettings
from headrace.kernel.errors import Refused
from headrace.log.settings import Durability
from headrace.store import open_store


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that people change."""

    max_attempts: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Taken so often and not done, a job is dead.", show_default="never"
        ),
    ] = None
    lease: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a job is leased.", show_default="24h")
    ] = None
    durability: Annotated[
        Durability | None,
        typer.Option(help="When an operation has been done.", show_default="fsync"),
    ] = None
    fair: Annotated[
        bool | None,
        typer.Option("--fair/--not-fair", help="Serve domains in turn, not by priority over all."),
    ] = None
    history: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|forever", help="Keep what has happened so long.", show_default="not at all"
        ),
    ] = None
    memory: Annotated[
        int | None,
        typer.Option(parser=parse_size, metavar="SIZE", help="Values in memory.", show_default="256MiB"),
    ] = None

    def settings(self, before: JournalSettings) -> JournalSettings:
        """These settings; where nothing is said, those of before."""
        given: dict[str, Any] = {
            "max_attempts": self.max_attempts,
            "lease": self.lease,
            "durability": self.durability,
            "fair": self.fair,
            "history": self.history,
            "memory_bytes": self.memory,
        }
        changed = {name: setting for name, setting in given.items() if setting is not None}
        return replace(before, **changed).checked()


@with_options
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The journal's name.", show_default=False)],
    *,
    policy: Policy,
    change: Annotated[
        bool, typer.Option("--change", help="Set one that is there anew; what is not given stays.")
    ] = False,
    place: Place,
    json: Json = False,
) -> None:
    """Make a new, empty journal, or change how one is set.

    Example: headrace journal create pages --max-attempts 5 --lease 2h
    """
    console = Console(json)
    if not place.on_node:
        place.check_local("create")
    with place.node() if place.on_node else open_store(place.store) as opened:
        there, before, where = opened.has_journal(name), JournalSettings(), place.server or place.store
        if there and not change:
            raise Refused(f"there is a journal {name!r} in {where} already: change it with --change")
        if change:
            check_journal(opened, name)
            with patient(lambda: opened.journal(name)) as journal:
                before = journal.settings
        settings = policy.settings(before)
        with patient(lambda: opened.journal(name, settings)) as journal:
            path = journal.engine.path if isinstance(journal, Journal) else f"{where}/journals/{name}"
            facts = {"name": name, "path": printable(path), "settings": settings}
    shown = aligned(msgspec.to_builtins(settings).items())
    console.answer(facts, f"{'changed' if there else 'created'} journal {name}\n{shown}")


@with_options
def redrive(
    name: JournalName,
    resources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RESOURCE]...", help="Which dead jobs.", show_default="all"),
    ] = None,
    *,
    place: Place,
    json: Json = False,
) -> None:
    """Put dead jobs back: they are due at once, with no attempts counted.

    `headrace journal ls NAME --state dead` lists them; `headrace spark redrive` chooses by SQL, and repairs.

    Example: headrace journal redrive pages https://example.com/a
    """
    console = Console(json)
    if place.on_node:
        with place.node() as node:
            count = OnNode(node, name, console).redrive(resources or None)
    else:
        place.check_local("redrive")
        with opened_store(place.store) as opened:
            check_journal(opened, name)
            with (
                console.progress("redriving"),
                closing(patient(lambda: opened.journal(name))) as journal,
            ):
                count = journal.redrive(resources or None)
    console.answer(
        {"name": name, "count": count}, f"{plural(count, 'dead job is', 'dead jobs are')} due again"
    )
