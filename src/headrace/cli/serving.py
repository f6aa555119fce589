"""Running the server of a journal until a signal ends it."""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import signal
import socket
import sys

from headrace.cli.console import Console
from headrace.cli.quantities import plural
from headrace.journal import Journal
from headrace.kernel.errors import Refused
from headrace.server.fj import FjServer, ServerLimits


def run_server(journal: Journal, host: str, port: int, limits: ServerLimits, console: Console) -> None:
    """Serve; print the address; return when a signal has come and everything taken was answered."""
    serving = _serve(journal, (host, port), limits, console)
    if importlib.util.find_spec("uvloop") is None:
        asyncio.run(serving)
    else:  # its loop costs less
        import uvloop

        uvloop.run(serving)


async def _serve(journal: Journal, where: tuple[str, int], limits: ServerLimits, console: Console) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, ended.set)
    try:
        server = await FjServer.start(journal, *where, limits)
    except OSError as error:
        why = error.strerror or error
        raise Refused(
            f"{where[0]}:{where[1]} cannot be listened on ({why}): choose another --port"
        ) from error
    host, port = server.address
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    facts = {"name": journal.name, "host": host, "port": port}
    console.answer(facts, f"serving journal {journal.name} at {shown}")
    sys.stdout.flush()
    await ended.wait()
    await server.stop()
    console.note(f"stopped after {plural(server.requests, 'request')}")


def check_host(host: str) -> None:
    """Refuse an address that others can reach."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)}
    except OSError as error:
        raise Refused(f"there is no host {host!r} ({error.strerror or error}): check --host") from error
    for address in found:
        if not ipaddress.ip_address(str(address).partition("%")[0]).is_loopback:
            raise Refused(
                f"{host or 'every address'} can be reached by others, and this protocol has no passwords: "
                "listen on 127.0.0.1, or say --open-to-anyone if your network keeps strangers out"
            )
