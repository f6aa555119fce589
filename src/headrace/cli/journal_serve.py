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
from headrace.store import open_store


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
    name: Annotated[str, typer.Argument(metavar="NAME", help="The journal's name.", show_default=False)],
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
    with open_store(store) as opened, patient(lambda: opened.journal(name)) as journal:
        run_server(journal, host, port, limits, Console(json))
