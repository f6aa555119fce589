"""Opening a journal for a command: where it is, what it is called, and errors that say what to type next.

A server has one journal, so its commands take no name:

    headrace journal get pages visits --store data
    headrace journal get visits --server localhost:4011
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from headrace.cli.console import Console
from headrace.cli.journal_verbs import Embedded, Remote, Verbs
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, opened_store
from headrace.kernel.errors import Refused
from headrace.store import Store, open_store

if TYPE_CHECKING:
    from headrace.client.fj import FjClient

JournalName = Annotated[
    str, typer.Argument(metavar="NAME", help="The journal's name; none with --server.", show_default=False)
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="HOST:PORT", help="Use the journal served there, instead of one in a store."
    ),
]
_USAGE: type[Any] = typer.BadParameter.__bases__[0]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the journal is: in a store, or behind a server."""

    store: StoreDir = DEFAULT_STORE
    server: Server = None

    @contextmanager
    def opened(self, name: str, console: Console) -> Iterator[Verbs]:
        if self.server is not None:
            with connected(self.server) as client:
                yield Remote(client)
        else:
            making = partial(_made, self.store, name, console)
            yield Embedded(name, partial(opened_store, self.store), making)

    def check_local(self, verb: str) -> None:
        """Refuse what the protocol of servers has no word for."""
        if self.server is not None:
            raise Refused(
                f"`{verb}` works on the files of a store: a server cannot be asked for it, "
                "so run it with --store on the server's machine"
            )


class JournalCommand(TyperCommand):
    """A command whose first argument is the journal's name, unless it is said by --server."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = args[: args.index("--")] if "--" in args else args
        remote = any(word == "--server" or word.startswith("--server=") for word in options)
        try:
            return super().parse_args(ctx, ["", *args] if remote else args)
        except _USAGE as error:
            if remote and "unexpected extra argument" in error.message:
                error.message += ": with --server, leave the journal's NAME out"
            raise


def connected(server: str) -> FjClient:
    from headrace.client.fj import connect  # asyncio comes with it: commands on stores are quicker without

    return connect(*parse_address(server))


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, or a usage error."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT, such as localhost:4011", param_hint="--server")
    return host.removeprefix("[").removesuffix("]") or "localhost", int(port)


@contextmanager
def _made(path: Path, name: str, console: Console) -> Iterator[Store]:
    """The store, in which a journal may be made: that is told, since the name may be a slip."""
    with open_store(path) as store:
        new = not store.has_journal(name)
        yield store
        if new:
            console.note(f"made the journal {name!r} in {path}")
