"""What a journal on a node is asked, and what is asked again when no answer came.

A request whose answer was lost may have been carried out. It is sent again only if that does no harm, even to
a node that was restarted meanwhile and remembers nothing: `again`. Any other request fails with
ConnectionLost or NoAnswer then, and the caller decides. One that was never sent, because nobody was there to
take it, is sent in any case while the client has patience.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec

from headrace.client.node_line import AWAY, NOT_DONE, NodeLine, path_of
from headrace.journal.errors import BadRequest
from headrace.journal.requests import Asked
from headrace.kernel.errors import Closed
from headrace.wire.http_words import REQUEST, SESSION

T = TypeVar("T")


class JournalLine:
    def __init__(self, node: NodeLine, name: str) -> None:
        self.node = node
        self.name = name
        self.closed = False
        self._session = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._owners: dict[Any, str] = {}

    async def ask(self, wanted: Asked, answer: type[T], *, again: bool = False) -> T:
        """One verb, and its answer."""
        body = self._body(wanted)
        headers = {SESSION: self._session}
        if again:
            headers[REQUEST] = f"{self._session}-{next(self._numbers)}"
        raw = await self.send("POST", wanted.verb, body, headers=headers, again=again)
        return msgspec.json.decode(raw, type=answer)

    async def send(
        self, method: str, verb: str, body: bytes | memoryview = b"", *, again: bool, **more: Any
    ) -> bytes:
        self.check()
        path = path_of("journals", self.name, verb)
        repeated = AWAY if again else NOT_DONE
        return await self.node.surely(lambda: self.node.ask(method, path, body, **more), repeated)

    @asynccontextmanager
    async def reading(self, verb: str, wanted: Asked | None = None) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response that goes on."""
        self.check()
        body = b"" if wanted is None else self._body(wanted)
        async with self.node.reading(path_of("journals", self.name, verb), body=body) as response:
            yield response

    def owner(self, owner: object) -> str | None:
        """How an owner of locks is called on the node: those of other clients are others."""
        if owner is None:
            return None
        try:
            return self._owners.setdefault(owner, str(len(self._owners)))
        except TypeError:
            raise BadRequest(f"an owner of a lock is text, a number or the like, not {owner!r}") from None

    def check(self) -> None:
        if self.closed:
            raise Closed(f"the journal {self.name!r} of {self.node.url} is closed")

    def _body(self, wanted: Asked) -> bytes:
        try:
            return msgspec.json.encode(wanted)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRequest(f"{wanted.verb} cannot take this: {error}") from error


async def lines_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a response, as they come."""
    begun: list[bytes] = []
    async for chunk in response.content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*begun, line])
            begun = []
        begun.append(rest)
