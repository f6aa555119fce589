"""Running a server until a signal ends it, and which addresses it may listen on."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import ipaddress
import signal
import socket
import sys
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from headrace.cli.console import Console
from headrace.cli.quantities import plural
from headrace.journal import Journal
from headrace.kernel.errors import Refused
from headrace.server.fj import FjServer
from headrace.server.fj_limits import ServerLimits
from headrace.server.open_files import allow_many

T = TypeVar("T")


def run_loop(serving: Coroutine[Any, Any, None]) -> None:
    allow_many()
    # What is open stays, and rows are no garbage: looking for some seldom saves a fifth of the time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    if importlib.util.find_spec("uvloop") is None:
        asyncio.run(serving)
    else:  # its loop costs less
        import uvloop

        uvloop.run(serving)


async def started(starting: Awaitable[T], where: tuple[str, int], option: str = "--port") -> T:
    """The server that was to be started, or a sentence why it cannot listen there."""
    try:
        return await starting
    except OSError as error:
        why = error.strerror or error
        raise Refused(
            f"{where[0]}:{where[1]} cannot be listened on ({why}): choose another {option}"
        ) from error


async def until_signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, ended.set)
    sys.stdout.flush()
    await ended.wait()


def shown_address(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run_server(journal: Journal, host: str, port: int, limits: ServerLimits, console: Console) -> None:
    """Serve a journal, until a signal has come and all that was taken is answered."""
    run_loop(_serve(journal, (host, port), limits, console))


async def _serve(journal: Journal, where: tuple[str, int], limits: ServerLimits, console: Console) -> None:
    server = await started(FjServer.start(journal, *where, limits), where)
    host, port = server.address
    facts = {"name": journal.name, "host": host, "port": port}
    console.answer(facts, f"serving journal {journal.name} at {shown_address(server.address)}")
    await until_signal()
    await server.stop()
    console.note(f"stopped after {plural(server.requests, 'request')}")


def check_host(host: str, advice: str = "") -> None:
    """Refuse an address that others can reach; `advice` is what one may do besides."""
    if others_reach(host):
        raise Refused(
            f"{host or 'every address'} can be reached by others, and this protocol has no passwords: "
            f"listen on 127.0.0.1{advice}"
        )


def others_reach(host: str) -> bool:
    """Whether an address is one that other machines can connect to."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)}
    except OSError as error:
        raise Refused(f"there is no host {host!r} ({error.strerror or error}): check --host") from error
    return not all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)
