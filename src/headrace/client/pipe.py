"""The client's end of a pipe: one request after the other to a node's stream, each answered (`wire.pipe`).

A pipe that broke is opened again by the next request. Whether the request that was under way was carried out
is not known then; what is safe to repeat goes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.client.conduits import Conduit, Conduits
from headrace.client.errors import ConnectionLost
from headrace.client.node_line import Absence, NodeLine, failure
from headrace.wire.http_words import PIPE
from headrace.wire.pipe import PipeAnswers, PipeRequest


class Pipe:
    def __init__(self, node: NodeLine, conduits: Conduits, path: str, headers: Mapping[str, str]) -> None:
        self._node = node
        self._conduits = conduits
        self._path = path
        self._headers = headers
        self.in_doubt = False
        """Whether the last request was sent at least once without an answer, whatever came in the end."""
        self._conduit: Conduit | None = None
        self._absence = Absence(node.patience)

    async def surely(self, request: PipeRequest) -> dict[str, Any]:
        """The node's answer, however often it has to be asked."""
        self.in_doubt = False
        return await self._absence.surely(
            lambda: self._ask(request),
            self._conduits.rest,
            lambda: self._node.closed or self._conduits.stopped,
        )

    async def _ask(self, request: PipeRequest) -> dict[str, Any]:
        sent = False
        try:
            if self._conduit is None:
                self._conduit = await self._conduits.open(self._path, PIPE, self._headers)
            sent = True
            await self._conduit.send(request.head, request.body)
            raw = await self._answer(self._conduit)
        except BaseException:  # interrupted, too: the next must not take this answer for its own
            self.in_doubt |= sent
            self.close()
            raise
        told: dict[str, Any] = msgspec.json.decode(raw)
        if "error" in told:
            raise failure(raw, int(told.get("status", 400)))
        return told

    async def _answer(self, conduit: Conduit) -> bytes:
        answers = PipeAnswers()
        while True:
            data = await conduit.receive()
            if not data:
                raise ConnectionLost(f"the connection to {self._node.url} broke")
            answer = answers.feed(data)
            if answer is not None:
                return answer

    def close(self) -> None:
        conduit, self._conduit = self._conduit, None
        if conduit is not None:
            conduit.close()
