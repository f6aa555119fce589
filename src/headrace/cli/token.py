"""`headrace token create`, `ls` and `revoke`: who may use the node of a store, and what for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from headrace.cli.console import Console
from headrace.cli.options import Json
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, opened_store
from headrace.kernel.clock import SystemClock
from headrace.server.tokens import Token, TokenFile
from headrace.store import open_store

app = typer.Typer(no_args_is_help=True, help="Tokens: who may use the node of a store, and what for.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.", show_default=False)]


def create(
    name: Name,
    *,
    allow: Annotated[
        list[str],
        typer.Option(
            metavar="PERMISSION:PATTERN",
            help="publish, read, create or admin, for names such as orders.* (may be repeated).",
            show_default=False,
        ),
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is good for: 30d.", show_default=False)
    ] = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Make a token, and print its secret, which is shown this once and stored nowhere.

    The node of the store needs tokens from the first one on, for every request. One that runs takes it up
    by itself.

    Example: headrace token create till-7 --allow 'publish:orders.*' --allow 'read:*' --expires 30d
    """
    with open_store(store):
        made = TokenFile(store).create(name, allow, expires)
    Console(json).answer({**_facts(made.token), "secret": made.secret}, made.secret)


def ls(store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """List the tokens: their permissions, and when they expire."""
    console = Console(json)
    with opened_store(store):
        tokens = TokenFile(store).tokens()
    rows = [_facts(token) for token in tokens or []]
    if json:
        console.answer({"needed": tokens is not None, "tokens": rows}, "")
    elif rows:
        shown = [
            (row["name"], " ".join(row["allow"]), row["created"], row["expires"] or "never") for row in rows
        ]
        console.table(["name", "allow", "created", "expires"], shown)
    elif tokens is None:
        console.note(f"{store} has no tokens: its node needs none, and serves its own machine only")
    else:
        console.note(f"every token of {store} has been revoked: nobody can use its node")


def revoke(name: Name, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Take a token away. A node that runs refuses it within a second, and ends what it follows."""
    with opened_store(store):
        gone = TokenFile(store).revoke(name)
    Console(json).answer(_facts(gone), f"revoked {name}")


def _facts(token: Token) -> dict[str, Any]:
    expires = token.expires_us
    return {
        "name": token.name,
        "allow": token.allow,
        "created": _shown(token.created_us),
        "expires": None if expires is None else _shown(expires),
        "expired": token.expired(SystemClock().now_us()),
    }


def _shown(moment_us: int) -> str:
    return datetime.fromtimestamp(moment_us // 1_000_000, UTC).isoformat().replace("+00:00", "Z")


for _name, _verb in (("create", create), ("ls", ls), ("revoke", revoke)):
    app.command(_name)(_verb)
