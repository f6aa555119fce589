"""A connection to a node that speaks FJ: one HTTP request, and from its answer on the journal's protocol."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from headrace.client.awaited import Link
from headrace.client.errors import CannotConnect, ConnectionLost, nobody
from headrace.client.line import Line
from headrace.client.node_line import NodeLine, path_of
from headrace.client.upgrade import Handshake, address, request
from headrace.kernel.dead_lines import watch
from headrace.kernel.errors import HeadraceError
from headrace.wire.http_words import FJ


def plain_line(node: NodeLine, name: str) -> Line:
    """A blocking line over a plain socket, which is the quickest."""
    host, port = address(node)
    connected = Line.dial(host, port, node.patience.connect_s)
    try:
        connected.sendall(_request(node, name))
        handshake = Handshake()
        while not handshake.feed(connected.recv(4096)):
            pass
        return Line.over(connected, f"{host}:{port}", node.patience.answer_s)
    except OSError as error:
        connected.close()
        raise ConnectionLost(f"the connection to {node.url} broke ({error})") from error
    except HeadraceError:
        connected.close()
        raise


async def async_link(node: NodeLine, name: str) -> Link:
    """The same for asyncio, with or without TLS."""
    host, port = address(node)
    where, loop = f"{host}:{port}", asyncio.get_running_loop()
    opening = loop.create_connection(
        lambda: _Switching(_request(node, name), loop.create_future()), host, port, ssl=node.tls
    )
    try:
        transport, switching = await asyncio.wait_for(opening, node.patience.connect_s)
    except (OSError, TimeoutError) as error:
        raise nobody(node.url, error) from error
    try:
        await asyncio.wait_for(switching.done, node.patience.answer_s)
    except TimeoutError as error:
        transport.abort()
        raise CannotConnect(f"{node.url} did not answer within {node.patience.answer_s:g} s") from error
    except HeadraceError:
        transport.abort()
        raise
    connected = transport.get_extra_info("socket")
    if connected is not None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch(connected, node.patience.answer_s)
    link = Link(where, node.patience.answer_s)
    transport.set_protocol(link)
    link.connection_made(transport)
    return link


class _Switching(asyncio.Protocol):
    """Sends the request and hears its answer."""

    def __init__(self, asked: bytes, done: asyncio.Future[None]) -> None:
        self.done = done
        self._asked = asked
        self._handshake = Handshake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._asked)

    def data_received(self, data: bytes) -> None:
        if self.done.done():
            return
        try:
            if self._handshake.feed(data):
                self.done.set_result(None)
        except HeadraceError as error:
            self.done.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self.data_received(b"")


def _request(node: NodeLine, name: str) -> bytes:
    return request(node, path_of("journals", name, "fj"), FJ)
