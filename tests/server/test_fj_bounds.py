"""How much of a server its peers can have: what they listen to, wait for, and send in part."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.journal import Journal, open_journal
from headrace.server.fj import FjServer
from headrace.server.fj_job_functions import _domain, _place
from headrace.server.fj_limits import ServerLimits
from headrace.wire.fj import LISTEN, RANGE, Function, Reply, Request, encode_request
from headrace.wire.fj_replies import ReplyParser

PATIENCE_S = 30


class Peer:
    """A connection, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._replies = ReplyParser()
        self._got: list[Reply] = []

    async def reply(self) -> Reply:
        while not self._got:
            data = await self.reader.read(1 << 16)
            assert data
            self._got += self._replies.feed(data)
        return self._got.pop(0)

    async def ask(self, function: Function, key: bytes, flags: int = LISTEN) -> bytes:
        """What the error of the answer is."""
        self.writer.write(encode_request(Request(function, 1, flags, 1, key=key), 1))
        return (await self.reply()).error


Scene = Callable[[FjServer, Journal, Peer], Awaitable[None]]


def play(place: Path, limits: ServerLimits, scene: Scene) -> None:
    async def played() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal, limits=limits)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    peer = Peer(*await asyncio.open_connection(*server.address))
                    await scene(server, journal, peer)
                    peer.writer.close()
            finally:
                await server.stop()

    asyncio.run(played())


def test_a_connection_waits_for_jobs_of_so_many_domains(place: Path) -> None:
    async def scene(server: FjServer, journal: Journal, peer: Peer) -> None:
        for name in (b"a", b"b", b"a"):
            assert await peer.ask(Function.NEXT, name) == b"nothing to work on"
        assert b"up to 2 domains" in await peer.ask(Function.NEXT, b"c")
        journal.put("r", domain="a")
        assert (await peer.reply()).identifier == 0
        assert await peer.ask(Function.NEXT, b"c") == b"nothing to work on"  # it waits for one less now

    play(place, ServerLimits(waited_domains=2), scene)


@pytest.mark.parametrize("function", [Function.NEXT, Function.GET])
def test_what_a_connection_listens_to_has_so_many_bytes(place: Path, function: Function) -> None:
    async def scene(server: FjServer, journal: Journal, peer: Peer) -> None:
        for name in (b"a" * 60, b"b" * 40, b"a" * 60):
            assert b"bytes" not in await peer.ask(function, name)
        assert b"up to 100 bytes" in await peer.ask(function, b"c")

    play(place, ServerLimits(listened_bytes=100), scene)


def test_those_who_begin_to_wait_together_are_looked_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: FjServer, journal: Journal, peer: Peer) -> None:
        looks = []
        look = server._due_domains
        monkeypatch.setattr(server, "_due_domains", lambda now: looks.append(now) or look(now))
        frames = [
            encode_request(Request(Function.NEXT, 1, LISTEN, 1, key=b"%d" % n), n + 1) for n in range(50)
        ]
        peer.writer.write(b"".join(frames))
        for _ in frames:
            await peer.reply()
        assert len(looks) < 50

    play(place, ServerLimits(), scene)


def test_who_has_sent_a_part_is_cut_off_while_all_hold_too_much(place: Path) -> None:
    async def scene(server: FjServer, journal: Journal, peer: Peer) -> None:
        whole = encode_request(Request(Function.SET, 1, 0, 1, key=b"k", type=1, value=bytes(90_000)), 1)
        others = [Peer(*await asyncio.open_connection(*server.address)) for _ in range(3)]
        for other in others:
            other.writer.write(whole[:80_000])
            await other.writer.drain()
        ended, _pending = await asyncio.wait(
            [asyncio.ensure_future(other.reader.read()) for other in others],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert ended
        assert not (await peer.ask(Function.NOP, b"", 0))
        for other in others:
            other.writer.close()
        while server.held_bytes:
            await asyncio.sleep(0.001)

    play(place, ServerLimits(value_bytes=100_000, held_bytes=200_000), scene)


def test_long_places_and_domains_are_not_remembered(place: Path) -> None:
    async def scene(server: FjServer, journal: Journal, peer: Peer) -> None:
        known = _place.cache_info().currsize, _domain.cache_info().currsize
        put = Request(Function.SET, 1, RANGE, 1, count=0, key=b"e" * 1000 + b":1:0", upper=b"r")
        peer.writer.write(encode_request(put))
        assert not (await peer.reply()).error
        assert await peer.ask(Function.NEXT, b"d" * 1000, 0) == b"nothing to work on"
        assert (_place.cache_info().currsize, _domain.cache_info().currsize) == known

    play(place, ServerLimits(), scene)
