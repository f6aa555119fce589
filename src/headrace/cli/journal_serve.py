"""`headrace journal serve`: a journal for other processes and machines, over the FJ protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from headrace.cli.console import Console
from headrace.cli.journal_verbs import patient
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import parse_size
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir
from headrace.kernel.errors import Refused
from headrace.store import Store, open_store

_FIRST = "jobs"
"""The journal that is made in a store without any, if none is named."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one peer, and all of them, may ask for."""

    connections: Annotated[int, typer.Option(min=1, metavar="N", help="Connections at most.")] = 1000
    rate: Annotated[
        float | None, typer.Option(min=1, metavar="N", help="Requests a second on one connection.")
    ] = None
    value_size: Annotated[int, typer.Option(parser=parse_size, metavar="SIZE", help="The largest value.")] = (
        "16MiB"  # type: ignore[assignment]
    )


@with_options
def serve(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The journal's name.",
            show_default=f"the only one of the store, or {_FIRST}, if there is none",
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 4011,
    open_to_anyone: Annotated[
        bool,
        typer.Option(
            "--open-to-anyone", help="Yes, whoever reaches this host may do anything to the journal."
        ),
    ] = False,
    bounds: Bounds,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Share a journal with other processes, until interrupted or terminated.

    The journal is made if there is none. The address is printed when it takes connections. At SIGTERM or
    SIGINT every request that was taken is answered, and the exit code is 0. The protocol, FJ, knows no
    passwords: hosts that others reach are refused without --open-to-anyone.

    Example: headrace journal serve pages --port 4011
    """
    from headrace.cli.serving import check_host, run_server  # asyncio: only where it is needed
    from headrace.server.fj_limits import ServerLimits

    if not open_to_anyone:
        check_host(host, ", or say --open-to-anyone if your network keeps strangers out")
    limits = ServerLimits(bounds.connections, bounds.rate, value_bytes=bounds.value_size)
    with open_store(store) as opened:
        chosen = _only_one(opened) if name is None else name
        with patient(lambda: opened.journal(chosen)) as journal:
            run_server(journal, host, port, limits, Console(json))


def _only_one(store: Store) -> str:
    """The journal that is meant when none is named."""
    names = store.journals() or [_FIRST]
    if len(names) > 1:
        raise Refused(f"{store.path} has several journals: say which of {', '.join(names)}")
    return names[0]
