"""A client that waits for each answer: the loop makes its requests safe itself, unless the disk is slow."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from tests.crash.disks import FailingDisk

import headrace.server.fj as fj
from headrace.client.errors import ConnectionLost
from headrace.client.fj import aconnect
from headrace.journal import open_journal
from headrace.server.fj import FjServer


class Witness(FailingDisk):
    """Notes which threads sync the tail."""

    def __init__(self) -> None:
        super().__init__(None, errno.EIO, kinds=["sync"], only=self._seen)
        self.threads: list[int] = []

    def _seen(self, name: str) -> bool:
        if not name.startswith("tail"):
            return False
        self.threads.append(threading.get_ident())
        return True


def test_what_could_not_be_synced_is_not_answered_at_all(place: Path) -> None:
    disk = Witness()

    async def scene() -> None:
        journal = open_journal(place / "j", disk=disk)
        server = await FjServer.start(journal)
        client = await aconnect(*server.address)
        await client.put("before")
        disk.fail_at = disk.count
        with pytest.raises(ConnectionLost):
            await client.put("lost")
        await server.stop()
        journal.close()

    asyncio.run(scene())
    with open_journal(place / "j") as journal:
        assert "before" in {job.resource for job in journal.jobs()}


def test_a_lone_request_is_synced_by_the_loop_and_by_another_thread_while_the_disk_is_slow(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Witness()

    async def scene() -> None:
        with open_journal(place / "j", disk=disk) as journal:
            server = await FjServer.start(journal)
            client = await aconnect(*server.address)
            monkeypatch.setattr(fj, "_SLOW_S", 3600.0)
            disk.threads.clear()
            await client.put("quick")
            assert threading.get_ident() in disk.threads
            monkeypatch.setattr(fj, "_SLOW_S", 0.0)
            await client.put("slow")
            disk.threads.clear()
            await client.put("by another")
            assert threading.get_ident() not in disk.threads
            await client.close()
            await server.stop()

    asyncio.run(scene())
