"""Runs of rows that many send to a node, for a stream or a journal, and that one has land together.

Everything here is safe to repeat, and is sent again for a while if the node is away.
"""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import quote

import msgspec

from headrace.client.node_line import NodeLine, path_of
from headrace.wire import http_words as words

Noun = Literal["streams", "journals"]


class StagedParts:
    def __init__(self, line: NodeLine, noun: Noun, name: str) -> None:
        self._line = line
        self._noun = noun
        self._name = name

    async def stage(self, query: str, batch: int, run: str, data: memoryview, checksum: int) -> str:
        """Send a run; the name by which it lands."""
        path, headers = self._path("staged", query, str(batch), run), {words.CHECKSUM: f"{checksum:016x}"}
        raw = await self._line.surely(
            lambda: self._line.ask("PUT", path, data, media=words.ARROW, headers=headers)
        )
        return str(msgspec.json.decode(raw)["run"])

    async def discard(self, query: str, batch: int, run: str) -> None:
        await self._line.told("DELETE", self._path("staged", query, str(batch), run))

    async def clear(self, query: str) -> None:
        await self._line.told("DELETE", self._path("staged", query))

    async def land(self, **wanted: Any) -> dict[str, Any]:
        """Have runs land: see `server.staged_landing` and `server.staged_jobs`."""
        told: dict[str, Any] = await self._line.surely(
            lambda: self._line.told("POST", self._path("land"), wanted)
        )
        return told

    def _path(self, *parts: str) -> str:
        return path_of(self._noun, self._name, *(quote(part, safe="") for part in parts))
