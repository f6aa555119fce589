"""Clients of a journal's server, which speaks FJ (docs/protocols/fj.md).

    with connect("localhost", 4011) as jobs:
        jobs.put("https://example.com/a", priority=10, after="10s")
        with jobs.next("example.com", lease="2h", wait="1m") as job:
            if job:
                work(job.resource)

`aconnect` is the same for asyncio: `client = await aconnect(host, port)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from headrace.client.awaited import AsyncFjClient, Link
from headrace.client.blocking import FjClient, Pending, Pipeline, Push
from headrace.client.errors import CannotConnect
from headrace.client.line import Line
from headrace.kernel.clock import Clock
from headrace.kernel.dead_lines import watch
from headrace.wire.fj import Limits

__all__ = ["AsyncFjClient", "FjClient", "Pending", "Pipeline", "Push", "aconnect", "connect"]

TIMEOUT_S = 30.0


def connect(
    host: str = "127.0.0.1",
    port: int = 4011,
    *,
    timeout: float = TIMEOUT_S,
    clock: Clock | None = None,
    limits: Limits | None = None,
) -> FjClient:
    """A blocking client. `timeout` is how long connecting, and each answer, may take."""
    return FjClient(Line.connect(host, port, timeout, limits), clock)


async def aconnect(
    host: str = "127.0.0.1",
    port: int = 4011,
    *,
    timeout: float = TIMEOUT_S,
    clock: Clock | None = None,
    limits: Limits | None = None,
) -> AsyncFjClient:
    """A client for asyncio."""
    where = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        opening = loop.create_connection(lambda: Link(where, timeout, limits), host, port)
        transport, link = await asyncio.wait_for(opening, timeout)
    except (OSError, TimeoutError) as error:
        raise CannotConnect(f"nobody answers at {where} ({error}): is the server running?") from error
    connected = transport.get_extra_info("socket")
    with contextlib.suppress(OSError):  # closed by the server already: the first call will tell why
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch(connected, timeout)
    return AsyncFjClient(link, clock)
