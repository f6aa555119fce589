"""Opening a journal for a command: where it is, what it is called, and errors that say what to type next.

A node has many journals, as a store has; a server of FJ has one, so its commands take no name:

    headrace journal get pages visits --store data
    headrace journal get pages visits --server http://localhost:7400
    headrace journal get visits --server localhost:4011
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from headrace.cli.console import Console
from headrace.cli.journal_on_node import OnNode
from headrace.cli.journal_verbs import Embedded, Remote, Verbs
from headrace.cli.options import Ca, Token
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, opened_store
from headrace.kernel.errors import Refused
from headrace.store import Store, open_store

if TYPE_CHECKING:
    from headrace.client.fj import FjClient
    from headrace.client.remote import RemoteStore

JournalName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The journal's name; none with --server HOST:PORT.", show_default=False
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL|HOST:PORT", help="Use a node's journal, or the one served there over FJ."
    ),
]
_USAGE: type[Any] = typer.BadParameter.__bases__[0]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the journal is: in a store, on a node, or behind a server of FJ."""

    store: StoreDir = DEFAULT_STORE
    server: Server = None
    token: Token = None
    ca: Ca = None

    @property
    def on_node(self) -> bool:
        return self.server is not None and is_url(self.server)

    @contextmanager
    def node(self) -> Iterator[RemoteStore]:
        """All journals of the node."""
        from headrace.client.connect import connect  # as below

        assert self.server is not None
        with connect(self.server, self.token, ca=self.ca) as store:
            yield store

    @contextmanager
    def opened(self, name: str, console: Console) -> Iterator[Verbs]:
        if self.on_node:
            with self.node() as store:
                yield OnNode(store, name, console)
        elif self.server is not None:
            with connected(self.server) as client:
                yield Remote(client)
        else:
            making = partial(_made, self.store, name, console)
            yield Embedded(name, partial(opened_store, self.store), making)

    def check_volatile(self, volatile: bool) -> None:
        """Refuse what would be gone as soon as the command ends."""
        if volatile and self.server is None:
            raise typer.BadParameter(
                "a store that nobody serves has no memory: it would be gone at once; give --server",
                param_hint="--volatile",
            )

    def check_local(self, verb: str) -> None:
        """Refuse what FJ has no word for."""
        if self.server is not None:
            raise Refused(
                f"`{verb}` cannot be asked for over FJ: give the URL of a node, or run it with --store "
                "on the server's machine"
            )


class JournalCommand(TyperCommand):
    """A command whose first argument is the journal's name, unless a server of FJ has only one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = args[: args.index("--")] if "--" in args else args
        words = pairwise([*options, ""])
        servers = [after if word == "--server" else word[9:] for word, after in words if _says_server(word)]
        remote = bool(servers) and not is_url(servers[-1])
        try:
            return super().parse_args(ctx, ["", *args] if remote else args)
        except _USAGE as error:
            if remote and "unexpected extra argument" in error.message:
                error.message += ": with --server HOST:PORT, leave the journal's NAME out"
            raise


def _says_server(word: str) -> bool:
    return word == "--server" or word.startswith("--server=")


def is_url(server: str) -> bool:
    """Whether it is a node; else it is HOST:PORT of a server of FJ."""
    return server.startswith(("http://", "https://"))


def connected(server: str) -> FjClient:
    from headrace.client.fj import connect  # asyncio comes with it: commands on stores are quicker without

    return connect(*parse_address(server, "HOST:PORT, such as localhost:4011, nor the URL of a node"))


def parse_address(text: str, takes: str) -> tuple[str, int]:
    """`host:port`, or a usage error."""
    host, colon, port = text.rpartition(":")
    if "/" in host or not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not {takes}", param_hint="--server")
    return host.removeprefix("[").removesuffix("]") or "localhost", int(port)


@contextmanager
def _made(path: Path, name: str, console: Console) -> Iterator[Store]:
    """The store, in which a journal may be made: that is told, since the name may be a slip."""
    with open_store(path) as store:
        new = not store.has_journal(name)
        yield store
        if new:
            console.note(f"made the journal {name!r} in {path}")
