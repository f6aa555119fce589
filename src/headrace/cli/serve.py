"""`headrace serve`: a store for other processes, over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.console import Console
from headrace.cli.options import Json
from headrace.cli.quantities import plural
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir
from headrace.kernel.errors import MissingExtra
from headrace.store import Store, open_store


def serve(
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 7400,
    journal: Annotated[
        str | None, typer.Option(metavar="NAME", help="A journal to serve over FJ, too.", show_default=False)
    ] = None,
    fj_port: Annotated[int, typer.Option(min=0, max=65535, help="The port for FJ; 0: any.")] = 4011,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Serve the streams and journals of a store over HTTP, until interrupted or terminated.

    The address is printed when it takes connections. At SIGTERM or SIGINT every request that was taken is
    answered, readers that follow get what is there, and the exit code is 0. There are no passwords yet, so
    only addresses of this machine are listened on.

    Example: headrace serve --port 7400
    """
    try:
        from headrace.cli.serving import check_host, run_loop
        from headrace.server import http  # noqa: F401  # is it installed?
    except ModuleNotFoundError as error:
        raise MissingExtra("this needs the server: pip install 'headrace[server]'") from error
    check_host(host)
    with open_store(store) as opened:
        run_loop(_serve(opened, (host, port), (journal, fj_port), Console(json)))


async def _serve(store: Store, where: tuple[str, int], fj: tuple[str | None, int], console: Console) -> None:
    from headrace.cli.serving import shown_address, started, until_signal
    from headrace.server.fj import FjServer
    from headrace.server.http import HttpServer
    from headrace.server.node import Node

    node = Node(store)
    server = await started(HttpServer.start(node, *where), where)
    facts: dict[str, object] = {"host": server.address[0], "port": server.address[1]}
    line = f"serving {store.path} at http://{shown_address(server.address)}"
    journals = None
    if fj[0] is not None:
        await node.ensure_journal(fj[0])
        there = (where[0], fj[1])
        journals = await started(FjServer.start(await node.journal(fj[0]), *there), there, "--fj-port")
        facts |= {"journal": fj[0], "fj_port": journals.address[1]}
        line += f", journal {fj[0]} over FJ at {shown_address(journals.address)}"
    console.answer(facts, line)
    await until_signal()
    await server.stop()
    if journals is not None:
        await journals.stop()
    await node.close()
    console.note(f"stopped after {plural(node.requests, 'request')}")
