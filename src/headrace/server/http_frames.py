"""Frames over HTTP: how streams and journals are copied to other nodes. docs/protocols/frames.md tells it.

GET    /streams/{name}/frames                                      from the beginning
GET    /streams/{name}/frames?id=…&from=…&head=…&epoch=…&last=…    from where a copy ends
GET    /journals/{name}/frames                                     the log of a journal, in the same way

The answer goes on as entries become durable. What is read ahead of a slow copy is bounded: one portion, of
which the large bodies stand in the mapped file. What ends the answer is said in a note before the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Protocol

from aiohttp import web

from headrace.kernel.errors import HeadraceError, Refused
from headrace.log.claim import Claim
from headrace.log.frame import HEADER_BYTES, decode_header
from headrace.log.frame_cursor import FrameCursor
from headrace.log.frame_stream import FrameEncoder, Note
from headrace.log.log import Log
from headrace.log.meta import salt_of
from headrace.log.scan import Frame
from headrace.server.http_numbers import number
from headrace.server.node import Node
from headrace.server.stream_desk import Copying
from headrace.wire.http_words import FRAMES

_PORTION_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18
"""What is handed to a connection at once; then it must have taken most of it."""
_PARAMETERS = {"id", "from", "head", "epoch", "last"}


class FrameRoutes:
    def __init__(self, node: Node, heartbeat_s: float = 5.0) -> None:
        self._node = node
        self._heartbeat_s = heartbeat_s

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/streams/{name}/frames", self.of_stream, allow_head=False),
            web.get("/journals/{name}/frames", self.of_journal, allow_head=False),
        ]

    async def of_stream(self, request: web.Request) -> web.StreamResponse:
        return await self._frames(request, await self._node.stream(request.match_info["name"]))

    async def of_journal(self, request: web.Request) -> web.StreamResponse:
        source = await self._node.journal_source(request.match_info["name"])
        with source.copied():
            await self._node.in_pool(source.pour)
            return await self._frames(request, source)

    async def _frames(self, request: web.Request, source: FrameSource) -> web.StreamResponse:
        claim = _claim(request.query)
        cursor = await self._node.in_pool(source.log.frames, claim, source.noun)
        sending = Sending(source, cursor)
        source.copies.add(sending)
        response = web.StreamResponse(headers={"Content-Type": FRAMES})
        try:
            await response.prepare(request)
            await self._send(response, sending)
            await response.write_eof()
        except ConnectionError:
            pass  # the copy has gone
        finally:
            source.copies.discard(sending)
            sending.close()
        return response

    async def _send(self, response: web.StreamResponse, sending: Sending) -> None:
        source = sending.source
        try:
            while not source.ending:
                move = source.next_move()
                for piece in await sending.step(self._node):
                    for at in range(0, len(piece), _PIECE_BYTES):
                        await response.write(piece[at : at + _PIECE_BYTES])
                if sending.caught_up:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(move.wait(), self._heartbeat_s)
        except HeadraceError as error:
            for piece in sending.last_portion(error):
                await response.write(piece)


class FrameSource(Protocol):
    """What is copied: a stream (`stream_desk`) or a journal (`journal_source`)."""

    @property
    def noun(self) -> str: ...
    @property
    def log(self) -> Log: ...
    @property
    def copies(self) -> set[Copying]: ...
    @property
    def ending(self) -> bool: ...
    def next_move(self) -> asyncio.Event: ...
    def swept(self) -> int:
        """No entry before it counts any more."""


class Sending:
    """A copy that is being sent to."""

    def __init__(self, source: FrameSource, cursor: FrameCursor) -> None:
        self.source = source
        self.caught_up = False
        """Whether there was nothing to send the last time."""
        self._cursor = cursor
        self._encoder = FrameEncoder(cursor.salt)
        self._failure: HeadraceError | None = None
        self._step: asyncio.Future[list[memoryview]] | None = None

    @property
    def lag(self) -> int:
        """How many settled entries have not been sent yet."""
        return max(0, self.source.log.settled.next_index - self._cursor.index)

    async def step(self, node: Node) -> list[memoryview]:
        """The next portion as bytes. If there are no frames now, it is a note alone: a sign of life."""
        self._step = asyncio.ensure_future(node.in_pool(self._portion))
        return await asyncio.shield(self._step)

    def _portion(self) -> list[memoryview]:
        log = self.source.log
        base, state = log.first_index, self.source.swept()  # before the end: it has what moved them on
        note = Note(end=log.settled.next_index, base=base, state=state)
        frames, size = list[Frame](), 0
        try:
            while size < _PORTION_BYTES and (frame := self._next_frame()) is not None:
                frames.append(frame)
                size += frame.header.frame_bytes
        except HeadraceError as error:
            if not frames:
                raise
            self._failure = error  # what is good before it is sent first
        self.caught_up = not frames
        return _joined(self._encoder.portion(note, frames))

    def _next_frame(self) -> Frame | None:
        if self._failure is not None:
            raise self._failure
        return self._cursor.next_frame()

    def last_portion(self, error: HeadraceError) -> list[memoryview]:
        """Why no more will come."""
        return self._encoder.portion(Note(error=error.code, message=str(error)), [])

    def close(self) -> None:
        """A copy that has gone may have left a step under way in the pool: it ends first."""
        if self._step is None or self._step.done():
            self._cursor.close()
        else:
            self._step.add_done_callback(lambda done: self._cursor.close())


def _joined(pieces: list[memoryview]) -> list[memoryview]:
    """Small pieces together, large ones as they are: fewer writes, and no large copies."""
    joined, small = list[memoryview](), bytearray()
    for piece in pieces:
        if len(piece) <= 1 << 16:
            small += piece
            continue
        joined += [memoryview(bytes(small)), piece] if small else [piece]
        small = bytearray()
    return [*joined, memoryview(bytes(small))] if small else joined


def _claim(query: Mapping[str, str]) -> Claim | None:
    """What the copy says it has; None if it is to begin."""
    if unknown := sorted(set(query) - _PARAMETERS):
        raise Refused(
            f"there is no parameter {unknown[0][:40]!r}: there are {', '.join(sorted(_PARAMETERS))}"
        )
    if not query:
        return None
    if "id" not in query or "from" not in query:
        raise Refused("a copy that has something says its `id`, and `from` which index it wants more")
    last = None
    if "last" in query:
        try:
            raw = bytes.fromhex(query["last"])
            last = decode_header(raw, salt_of(query["id"]))
        except ValueError:
            raw = b""
        if last is None or len(raw) != HEADER_BYTES:
            raise Refused("`last` is no header of a frame of the log that `id` names")
    index, head, epoch = (number(query.get(name, "0"), name, bits=64) for name in ("from", "head", "epoch"))
    return Claim(query["id"], index, head, epoch, last)
