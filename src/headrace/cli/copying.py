"""What `headrace stream follow` and `headrace journal follow` share, and what tells of the end of a copy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.console import Console
from headrace.cli.options import Ca, Token
from headrace.cli.quantities import format_size, plural
from headrace.kernel.errors import MissingExtra
from headrace.log.copy import Origin
from headrace.store import open_store

if TYPE_CHECKING:
    from headrace.client.replica import Kinds

Url = Annotated[str, typer.Argument(metavar="URL", help="The node: http://host:7400.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Copying:
    """How the node is reached, and how the copy is kept."""

    local: Annotated[
        str | None, typer.Option("--as", metavar="LOCAL", help="Its name here.", show_default="the same")
    ] = None
    once: Annotated[bool, typer.Option("--once", help="End when everything is here that is there now.")] = (
        False
    )
    token: Token = None
    ca: Ca = None


def keep_copy(kind: Kinds, url: str, name: str, copying: Copying, store: Path, console: Console) -> None:
    """Follow until interrupted or terminated, or `once`; then tell how it was."""
    try:
        from headrace.cli.following import run_replica
        from headrace.client.node_line import NodeLine
        from headrace.client.replica import Replica
    except ModuleNotFoundError as error:
        raise MissingExtra("this needs the server: pip install 'headrace[server]'") from error
    with open_store(store) as opened:
        line = NodeLine(url, copying.token, ca=copying.ca)
        state = run_replica(
            lambda: Replica(opened, line, name, kind=kind, local=copying.local), copying.once, console
        )
    facts = {
        "name": state.name,
        "source": state.source.name,
        "url": state.source.url,
        "entries": state.entries,
        "bytes": state.bytes,
        "next_index": state.next_index,
    }
    what = ("entry", "entries") if kind == "streams" else ("event", "events")
    came = f"{plural(state.entries, *what)}, {format_size(state.bytes)}"
    console.answer(facts, f"{state.name} ends at index {state.next_index}: {came} came")


def tell_unfollowed(noun: str, name: str, origin: Origin, end: int, console: Console) -> None:
    """A copy has become one of its own."""
    facts = {"name": name, "source": origin.name, "url": origin.url, "next_index": end}
    text = f"{name} is a {noun} of its own from index {end} on, and no copy of {origin.name} at {origin.url}"
    console.answer(facts, text)
