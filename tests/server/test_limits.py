"""What the server bounds, and how it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.client.fj import aconnect
from headrace.journal import open_journal
from headrace.kernel.errors import HeadraceError
from headrace.server.fj import FjServer
from headrace.server.fj_limits import ServerLimits


def test_connections_beyond_the_limit_are_refused_with_a_word(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal, limits=ServerLimits(connections=2))
            clients = [await aconnect(*server.address) for _ in range(2)]
            for client in clients:
                await client.set("k", 1)
            third = await aconnect(*server.address)
            with pytest.raises(HeadraceError):
                await third.set("k", 2)
            for client in clients:
                await client.close()
            while server.connections:
                await asyncio.sleep(0.001)
            fourth = await aconnect(*server.address)
            await fourth.set("k", 3)
            await fourth.close()
            await server.stop()

    asyncio.run(scene())


def test_a_quick_peer_is_slowed_down_and_loses_nothing(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal, limits=ServerLimits(requests_per_s=2000))
            client = await aconnect(*server.address)
            await asyncio.gather(*(client.set(f"k{n}", n) for n in range(500)))
            assert len(list(journal.range())) == 500
            await client.close()
            await server.stop()

    asyncio.run(scene())


def test_stopping_answers_what_was_taken(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal)
            client = await aconnect(*server.address)
            setting = [asyncio.ensure_future(client.set(f"k{n}", n)) for n in range(200)]
            await asyncio.sleep(0)
            while server.requests < 200:
                await asyncio.sleep(0)
            await server.stop()
            await asyncio.gather(*setting)
            assert len(list(journal.range())) == 200

    asyncio.run(scene())


def test_a_waiting_client_is_told_when_another_thread_puts_a_job(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal)
            client = await aconnect(*server.address)
            waiting = asyncio.ensure_future(client.next("example.com", wait="1m"))
            while not server.waits:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(journal.put, "https://example.com/a")
            job = await waiting
            assert job
            await client.done(job)
            await client.close()
            await server.stop()

    asyncio.run(scene())
