"""The client's end of a pipe: one request after the other to a node's stream, each answered (`wire.pipe`).

A pipe that broke is opened again by the next request. Whether the request that was under way was carried out
is not known then; what is safe to repeat goes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.client.errors import ConnectionLost
from headrace.client.node_line import AWAY, NodeLine, failure, surely
from headrace.client.wires import Wire, Wires
from headrace.wire.http_words import PIPE
from headrace.wire.pipe import PipeAnswers, PipeRequest


class Pipe:
    def __init__(self, node: NodeLine, wires: Wires, path: str, headers: Mapping[str, str]) -> None:
        self._node = node
        self._wires = wires
        self._path = path
        self._headers = headers
        self._wire: Wire | None = None

    async def surely(self, request: PipeRequest) -> dict[str, Any]:
        """The node's answer, however often it has to be asked."""
        return await surely(
            lambda: self._ask(request), self._node.patience, self._wires.rest, lambda: self._node.closed, AWAY
        )

    async def _ask(self, request: PipeRequest) -> dict[str, Any]:
        try:
            if self._wire is None:
                self._wire = await self._wires.open(self._path, PIPE, self._headers)
            await self._wire.send(request.head, request.body)
            raw = await self._answer(self._wire)
        except (
            BaseException
        ):  # interrupted, too: an answer is under way that the next must not take for its own
            self.close()
            raise
        told: dict[str, Any] = msgspec.json.decode(raw)
        if "error" in told:
            raise failure(raw, int(told.get("status", 400)))
        return told

    async def _answer(self, wire: Wire) -> bytes:
        answers = PipeAnswers()
        while True:
            data = await wire.receive()
            if not data:
                raise ConnectionLost(f"the connection to {self._node.url} broke")
            answer = answers.feed(data)
            if answer is not None:
                return answer

    def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
