"""Keys so long that what is told of them hardly fits a frame of FJ."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.client.fj import aconnect
from headrace.journal import open_journal
from headrace.kernel.errors import TooLarge
from headrace.server.fj import FjServer
from headrace.wire.fj import CURSOR, DATA, RANGE, SIZE_MAX, Function

from .fj_asked import Asking

LONG = 40_000


def test_a_range_from_a_long_key_goes_on_behind_its_cursor(place: Path) -> None:
    keys = [letter * LONG for letter in "abc"]
    with open_journal(place / "j") as journal:
        for key in keys:
            journal.set(key, 1)
        ask, found = Asking(journal), list[str]()
        page = ask(Function.GET, keys[0].encode(), DATA | RANGE, upper=b"d", count=2)
        while page.cursor is not None:
            assert len(page.cursor) <= SIZE_MAX
            found += [pair.key.decode() for pair in page.pairs or []]
            page = ask(Function.GET, page.cursor, DATA | CURSOR)
        assert found + [pair.key.decode() for pair in page.pairs or []] == keys


def test_a_cursor_that_does_not_fit_is_told_and_the_connection_goes_on(place: Path) -> None:
    async def scene() -> None:
        with open_journal(place / "j") as journal:
            server = await FjServer.start(journal)
            client = await aconnect(*server.address)
            for letter in "ab":
                await client.set(letter * LONG, 1)
            with pytest.raises(TooLarge, match="cursor"):
                _ = [value async for value in client.range("", "c" * LONG, count=1)]
            assert len([value async for value in client.range("", "c" * LONG)]) == 2
            await client.close()
            await server.stop()

    asyncio.run(scene())
