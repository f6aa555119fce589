"""`headrace journal forward`: the service that brings a spool to a server."""

from __future__ import annotations

import signal
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.console import Console, Exit, printable
from headrace.cli.journal_open import parse_address
from headrace.cli.options import Json
from headrace.cli.quantities import plural
from headrace.kernel.errors import NotFound


def forward(
    spool: Annotated[
        Path,
        typer.Argument(metavar="SPOOL", help="The spool: a directory.", show_default=False, readable=False),
    ],
    server: Annotated[
        str,
        typer.Option("--server", metavar="HOST:PORT", help="Where to send it.", show_default=False),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="End when everything is sent; fail if it cannot be.")
    ] = False,
    json: Json = False,
) -> None:
    """Send what is in a spool to a server, until interrupted or terminated.

    What the server has on its disk is erased here, and nothing else, so this can be killed at any moment. A
    server that is away is tried again. What it refuses is set aside with the reason; the exit code is then 3.

    Example: headrace journal forward spool --server localhost:4011 --once
    """
    from headrace.client.forward import Forwarder

    takes = "HOST:PORT of a server of FJ, such as localhost:4011; a node has an --fj-port"
    console, address = Console(json), parse_address(server, takes)
    if once and not spool.is_dir():
        raise NotFound(f"there is no spool at {spool}: check the path")
    forwarder = Forwarder(spool, *address)

    def end(*_signal: object) -> None:
        # In a thread: a signal interrupts whatever runs, which may have the lock that `stop` needs.
        threading.Thread(target=forwarder.stop, daemon=True).start()

    before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}
    if not once:
        console.note(f"forwarding {spool} to {server}")
    try:
        with console.progress("forwarding", wanted=once):
            report = forwarder.run(once=once)
    finally:
        for each, handled in before.items():
            signal.signal(each, handled)
    text = f"sent {plural(report.sent, 'request')}"
    text += f", {report.refused} refused" if report.refused else ""
    text += f", {plural(report.torn, 'torn record')} passed over" if report.torn else ""
    console.answer({"spool": printable(spool), **asdict(report)}, text)
    if report.refused or report.torn:
        raise typer.Exit(Exit.DAMAGE)
