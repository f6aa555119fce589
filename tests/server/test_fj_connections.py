"""What belongs to one connection of FJ: the locks it holds, the keys it listens to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.client.fj import aconnect
from headrace.journal import BadRequest, KeyTaken, open_journal
from headrace.server.fj import FjServer
from headrace.server.fj_limits import ServerLimits


async def _left(server: FjServer) -> None:
    """Return when the server has seen the end of all connections."""
    while server.connections:
        await asyncio.sleep(0.001)


def test_a_lock_that_was_renamed_ends_with_its_connection(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal)
            holder = await aconnect(*server.address)
            await holder.set("a", 1)
            await holder.lock("a", until="3650d")
            await holder.rename("a", "b")
            await holder.rename("b", "c")
            assert journal.get("c").locked
            await holder.close()
            await _left(server)
            journal.set("c", 2)
            assert not journal.get("c").locked
            await server.stop()

    asyncio.run(scene())


def test_a_lock_that_was_renamed_by_a_key_beside_it_ends_with_its_connection(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal)
            holder = await aconnect(*server.address)
            await holder.set("a", 1)
            await holder.link("a", "b")
            await holder.lock("b", until="3650d")
            await holder.rename("a", "c")
            await holder.rename("b", "d")
            await holder.close()
            await _left(server)
            journal.set("c", 2)
            assert journal.get("d").value == 2
            await server.stop()

    asyncio.run(scene())


def test_a_set_that_would_listen_to_too_many_keys_is_not_done(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal, limits=ServerLimits(listened_keys=1))
            client = await aconnect(*server.address)
            await client.set("a", 1, listen=True)
            with pytest.raises(BadRequest, match="up to 1 keys"):
                await client.set("b", 2, listen=True)
            assert journal.get("b") is None
            await client.set("a", 3, listen=True)
            assert journal.get("a").value == 3
            await client.close()
            await server.stop()

    asyncio.run(scene())


def test_a_set_that_is_refused_does_not_listen(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal, limits=ServerLimits(listened_keys=1))
            client = await aconnect(*server.address)
            journal.set("a", 1)
            with pytest.raises(KeyTaken):
                await client.set("a", 2, overwrite=False, listen=True)
            await client.set("b", 2, listen=True)  # it has room for it still
            await client.close()
            await server.stop()

    asyncio.run(scene())
