"""Conduits of an event loop (see `client.conduits`)."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import cast

from headrace.client.conduits import pieces
from headrace.client.errors import ConnectionLost, NoAnswer, nobody
from headrace.client.node_line import NodeLine
from headrace.client.upgrade import Handshake, address, request
from headrace.kernel.dead_lines import watch
from headrace.kernel.errors import Closed

_AHEAD_BYTES = 1 << 20
"""So much may wait for whoever receives; the rest stays in the socket."""


class LoopConduits:
    stopped = False

    def __init__(self, node: NodeLine) -> None:
        self._node = node

    async def open(self, path: str, word: str, headers: Mapping[str, str]) -> LoopConduit:
        node, (host, port) = self._node, address(self._node)
        opening = asyncio.get_running_loop().create_connection(
            lambda: LoopConduit(node), host, port, ssl=node.tls
        )
        try:
            _, conduit = await asyncio.wait_for(opening, node.patience.connect_s)
        except (OSError, TimeoutError) as error:
            raise nobody(node.url, error) from error
        node.conduits.add(conduit)
        try:
            if node.closed:  # meanwhile
                raise Closed(f"the connection to {node.url} is closed")
            await conduit.begin(request(node, path, word, headers))
        except BaseException:
            conduit.close()
            raise
        return conduit

    async def rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class LoopConduit(asyncio.Protocol):
    def __init__(self, node: NodeLine) -> None:
        self.headers: Mapping[str, str] = {}
        self._node = node
        self._transport: asyncio.Transport | None = None
        self._came: deque[bytes] = deque()
        self._came_bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        self._ended = False
        self._error: Exception | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    async def begin(self, asked: bytes) -> None:
        """Send the request, and take the answer that makes this a conduit."""
        await self.send(asked)
        handshake = Handshake()
        while not handshake.feed(await self.receive()):
            pass
        self.headers = handshake.headers
        if handshake.rest:
            self._came.appendleft(handshake.rest)
            self._came_bytes += len(handshake.rest)

    async def send(self, *parts: bytes | memoryview) -> None:
        for part in parts:
            for piece in pieces(part):
                if self._transport is None or self._transport.is_closing():
                    raise ConnectionLost(f"the connection to {self._node.url} broke")
                self._transport.write(piece)
                if not self._writable.is_set():
                    await self._in_time(self._writable.wait())

    async def receive(self) -> bytes:
        if not self._came and not self._ended:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._in_time(self._waiting)
        if self._came:
            data = self._came.popleft()
            self._came_bytes -= len(data)
            self._bound()
            return data
        if self._error is not None:
            raise ConnectionLost(f"the connection to {self._node.url} broke ({self._error})")
        return b""

    async def receive_into(self, room: memoryview) -> int:
        data = await self.receive()
        taken = data[: len(room)]
        room[: len(taken)] = taken
        if len(taken) < len(data):
            self._came.appendleft(data[len(taken) :])
            self._came_bytes += len(data) - len(taken)
        return len(taken)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _in_time(self, coming: Awaitable[object]) -> None:
        patience = self._node.patience
        try:
            async with asyncio.timeout(patience.answer_s):
                await coming
        except TimeoutError as error:
            raise NoAnswer(f"{self._node.url} said nothing for {patience.answer_s:g} s") from error

    # --- the connection's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            watch(connected, self._node.patience.answer_s)

    def data_received(self, data: bytes) -> None:
        self._came.append(data)
        self._came_bytes += len(data)
        self._bound()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._error = error
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _bound(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        reading = self._came_bytes < _AHEAD_BYTES
        if reading is not self._transport.is_reading():
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
