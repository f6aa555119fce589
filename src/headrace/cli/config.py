"""`headrace config show`: every setting of a node, its value, and who has said so."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headrace.cli.console import Console
from headrace.cli.options import Json
from headrace.cli.settings import Settled
from headrace.cli.settings_flags import with_settings

app = typer.Typer(no_args_is_help=True, help="Settings of a node: what is in force, and why.")

Origin = Annotated[bool, typer.Option("--origin", help="Say where each comes from.")]


@with_settings
def show(settings: Settled, origin: Origin = False, json: Json = False) -> None:
    """Print the settings that `headrace serve` would run with, given the same options.

    Flags win over HEADRACE_* variables, these over the file, and the file over the defaults. Secrets are
    not shown.

    Example: headrace config show --origin
    """
    console = Console(json)
    if json:
        facts = {
            each.key: {"value": each.value, "origin": each.origin} if origin else each.value
            for each in settings.origins
        }
        console.answer(facts, "")
        return
    rows = [
        (each.key, msgspec.json.encode(each.value).decode(), *([each.origin] if origin else []))
        for each in settings.origins
    ]
    console.table(["setting", "value", *(["origin"] if origin else [])], rows)


app.command("show")(show)


@app.callback()
def config() -> None:
    """Settings of a node: what is in force, and why."""
