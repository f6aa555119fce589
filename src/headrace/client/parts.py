"""A node's stream for programs that work in large parts: plans, named positions, runs that land together.

Everything here is safe to repeat, and is sent again for a while if the node is away.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import msgspec

from headrace.client.node_line import NodeLine, path_of
from headrace.kernel.errors import HeadraceError
from headrace.log.mark import Settled
from headrace.log.plan import Span
from headrace.log.state import Commit
from headrace.wire import http_words as words

_RENEW_S = 3.0


class StreamParts:
    def __init__(self, line: NodeLine, name: str) -> None:
        self._line = line
        self._name = name

    # --- reading

    async def reach(self) -> tuple[int, Settled]:
        """The oldest index that is kept, and how far the stream reaches that no power cut can take back."""
        told = await self._told("GET", "info")
        return told["first"], Settled(told["settled"], told["head_bits"])

    async def seek(self, key: str | int) -> int:
        """The first index whose order key is at least `key`: as text, or as its 64 sortable bits."""
        query = f"bits={key}" if isinstance(key, int) else f"key={quote(key, safe='')}"
        return int((await self._told("GET", f"seek?{query}"))["index"])

    async def plan(self, start: int, stop: int, rows: int | None, cores: int) -> list[Span]:
        query = f"from={start}&to={stop}&cores={cores}" + (f"&rows={rows}" if rows else "")
        cuts = (await self._told("GET", f"plan?{query}"))["cuts"]
        return [Span(first, last) for first, last in pairwise(cuts)]

    async def save_position(self, position: str, reader: str, index: int | None) -> int:
        """Hold a position in the name of `reader`, and remember `index`, if one is given; what it is now."""
        body = {"id": reader, "index": index}
        return int((await self._told("POST", f"positions/{quote(position, safe='')}", body))["index"])

    async def keep_position(self, position: str, reader: str) -> None:
        """Say again and again that the position is held, until this is cancelled."""
        while True:
            await asyncio.sleep(_RENEW_S)
            with contextlib.suppress(HeadraceError):  # if it is lost, the next save is told so
                await self.save_position(position, reader, None)

    async def release_position(self, position: str, reader: str) -> None:
        path = path_of("streams", self._name, "positions", quote(position, safe=""))
        await self._line.told("DELETE", path, {"id": reader})

    # --- writing

    async def stage(self, query: str, batch: int, run: str, data: memoryview, checksum: int) -> str:
        """Send a run; the name by which it lands."""
        path = path_of("streams", self._name, "staged", quote(query, safe=""), str(batch), run)
        headers = {words.CHECKSUM: f"{checksum:016x}"}
        raw = await self._line.surely(
            lambda: self._line.ask("PUT", path, data, media=words.ARROW, headers=headers)
        )
        return str(msgspec.json.decode(raw)["run"])

    async def discard(self, query: str, batch: int, run: str) -> None:
        path = path_of("streams", self._name, "staged", quote(query, safe=""), str(batch), run)
        await self._line.told("DELETE", path)

    async def clear(self, query: str) -> None:
        path = path_of("streams", self._name, "staged", quote(query, safe=""))
        await self._line.told("DELETE", path)

    async def land(self, **wanted: Any) -> Commit:
        """Have runs land: see `server.staged_landing`."""
        told = await self._told("POST", "land", wanted)
        return Commit(
            wanted.get("writer", ""),
            wanted.get("batch", 0),
            told["first"],
            told["next"],
            repeated=told["repeated"],
        )

    async def _told(self, method: str, verb: str, body: Any = None) -> Any:
        path = f"{path_of('streams', self._name)}/{verb}"
        return await self._line.surely(lambda: self._line.told(method, path, body))
