"""`headrace stream follow` and `unfollow`: a local copy of a node's stream, and its end as a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from headrace.cli.console import Console
from headrace.cli.options import Ca, Json, Token, with_options
from headrace.cli.quantities import format_size, plural
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, StreamName, opened_store
from headrace.kernel.errors import MissingExtra
from headrace.store import open_store


@dataclass(frozen=True, slots=True)
class Source:
    """How the node is reached."""

    token: Token = None
    ca: Ca = None


@with_options
def follow(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The node: http://host:7400.", show_default=False)
    ],
    name: StreamName,
    source: Source,
    local: Annotated[
        str | None, typer.Option("--as", metavar="LOCAL", help="Its name here.", show_default="the same")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when everything is here that is there now.")
    ] = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Keep a local copy of a node's stream, until interrupted or terminated.

    What is here is not sent again: it goes on with the first index that is missing. Everything can read the
    copy; only this command adds to it. If the node is away, it is tried again. A source that was cut, or
    replaced, or trimmed beyond the copy is refused.

    Example: headrace stream follow http://there:7400 orders --once
    """
    try:
        from headrace.cli.following import run_replica
        from headrace.client.node_line import NodeLine
    except ModuleNotFoundError as error:
        raise MissingExtra("this needs the server: pip install 'headrace[server]'") from error
    console = Console(json)
    with open_store(store) as opened:
        state = run_replica(opened, NodeLine(url, source.token, ca=source.ca), name, local, once, console)
    facts = {
        "name": state.name,
        "source": state.source.name,
        "url": state.source.url,
        "entries": state.entries,
        "bytes": state.bytes,
        "next_index": state.next_index,
    }
    came = f"{plural(state.entries, 'entry', 'entries')}, {format_size(state.bytes)}"
    console.answer(facts, f"{state.name} ends at index {state.next_index}: {came} came")


def unfollow(name: StreamName, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Make a copy a stream of its own: it takes entries, and follows no more.

    Nobody may be following into it. Other copies can follow it from now on instead of its source.
    """
    with opened_store(store) as opened:
        origin = opened.unfollow(name)
        end = opened.stream(name).next_index
    facts = {"name": name, "source": origin.name, "url": origin.url, "next_index": end}
    text = f"{name} is a stream of its own from index {end} on, and no copy of {origin.name} at {origin.url}"
    Console(json).answer(facts, text)
