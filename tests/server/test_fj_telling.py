"""Whom a server of FJ tells, beside the one that asked: those who listen, and those who wait for a job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.client.fj import aconnect
from headrace.journal import Journal, ledger, open_journal
from headrace.server.fj import FjServer

PATIENCE_S = 30
"""Never reached unless nobody is told."""

Scene = Callable[[FjServer, Journal, Any, Any], Awaitable[None]]


@pytest.fixture
def play(place: Path, monkeypatch) -> Callable[[Scene], None]:
    """A server with two clients; nothing happens in the background of its journal."""
    monkeypatch.setattr(ledger.Ledger, "start", lambda self: None)

    async def scene(play: Scene) -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal)
            one, other = await aconnect(*server.address), await aconnect(*server.address)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await play(server, journal, one, other)
            finally:
                for client in (one, other):
                    await client.close()
                await server.stop()

    return lambda play: asyncio.run(scene(play))


@pytest.mark.parametrize("persist", [True, False])
def test_who_listens_is_told_of_a_value_in_memory_only_as_of_another(play, persist):
    async def scene(server: FjServer, journal: Journal, one: Any, other: Any) -> None:
        await one.listen("k")
        await other.put("r")
        assert await other.next()  # written, and not synced
        await other.set("k", 1, persist=persist)
        async for push in one.pushes():
            assert push.key == "k"
            break

    play(scene)


@pytest.mark.parametrize("persist", [True, False])
def test_who_waits_over_fj_is_told_of_a_job_in_memory_only_as_of_another(play, persist):
    async def scene(server: FjServer, journal: Journal, one: Any, other: Any) -> None:
        waiting = asyncio.ensure_future(one.next(wait="1h"))
        while not server.waits:
            await asyncio.sleep(0.001)
        await other.put("r", persist=persist)
        assert (await waiting).resource == "r"

    play(scene)


@pytest.mark.parametrize("how", ["put", "many", "given back", "done"])
def test_who_waits_in_the_process_of_the_server_is_told_of_a_job_that_comes_over_fj(play, how):
    async def scene(server: FjServer, journal: Journal, one: Any, other: Any) -> None:
        taken = None
        if how in ("given back", "done"):
            await one.put("r")
            taken = await one.next(lease="1h")
            if how == "done":
                await one.put("r")  # waits beside the other
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(journal.next(wait="1h")), daemon=True)
        thread.start()
        while not journal.engine.waiting:
            await asyncio.sleep(0.001)
        if how == "put":
            await one.put("r")
        elif how == "many":
            await one.put_batch(["r"])
        elif how == "given back":
            await one.fail(taken, retry_in=0)
        else:
            await one.done(taken)
        while not found:
            await asyncio.sleep(0.001)
        assert found[0].resource == "r"

    play(scene)
