"""`headrace journal follow`, `unfollow` and `drop`: a local copy of a node's journal, and its end."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.console import Console
from headrace.cli.copying import Copying, Url, keep_copy, tell_unfollowed
from headrace.cli.journal_verbs import log_path
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import format_size
from headrace.cli.stream_care import check_meant
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, opened_store
from headrace.log import Log

Name = Annotated[str, typer.Argument(metavar="NAME", help="The journal's name.", show_default=False)]


@with_options
def follow(
    url: Url, name: Name, copying: Copying, store: StoreDir = DEFAULT_STORE, json: Json = False
) -> None:
    """Keep a local copy of a node's journal, until interrupted or terminated.

    Every change is here soon after it is safe there. What is here is not sent again. The copy can be looked
    at (`ls`, `stats`, `get`, Spark); jobs are put and taken at the node. If the node is away, it is tried
    again. A copy that was away for too long begins anew. A journal that was replaced, or cut, is refused.

    Example: headrace journal follow http://there:7400 pages --store spare
    """
    keep_copy("journals", url, name, copying, store, Console(json))


def unfollow(
    name: Name,
    partly: Annotated[
        bool, typer.Option("--partly", help="Even if it never had everything: with what it has.")
    ] = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Make a copy a journal of its own: work goes on in it, and it follows no more.

    Nobody may be following into it. Jobs that were leased are leased until then. Be sure that nobody works
    with its source any more, or the same job is done twice.

    Example: headrace journal unfollow pages --store spare
    """
    with opened_store(store) as opened:
        origin = opened.unfollow_journal(name, partly)
        with Log.open(log_path(opened, name), read_only=True) as log:
            end = log.next_index
    tell_unfollowed("journal", name, origin, end, Console(json))


def drop(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Remove a journal with all its jobs and values, for ever.

    Example: headrace journal drop pages --store spare --yes
    """
    console = Console(json)
    with opened_store(store) as opened:
        with Log.open(log_path(opened, name), read_only=True) as log:
            size = log.info().bytes
        check_meant(f"journal {name!r} with all its jobs and values", yes, json)
        opened.drop_journal(name)
    facts = {"name": name, "freed_bytes": size}
    console.answer(facts, f"dropped journal {name}, freed {format_size(size)}")
