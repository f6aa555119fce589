"""A connection to a node that speaks FJ: one HTTP request, and from its answer on the journal's protocol."""

from __future__ import annotations

import asyncio
import socket
from typing import cast
from urllib.parse import urlsplit

from headrace.client.awaited import Link
from headrace.client.errors import CannotConnect, ConnectionLost, nobody
from headrace.client.line import Line
from headrace.client.node_line import NodeLine, failure, path_of
from headrace.kernel.dead_lines import watch
from headrace.kernel.errors import HeadraceError
from headrace.wire.http_words import FJ

_HEAD_BYTES_MAX = 1 << 16


def plain_line(node: NodeLine, name: str) -> Line:
    """A blocking line over a plain socket, which is the quickest."""
    host, port = _address(node)
    connected = Line.dial(host, port, node.patience.connect_s)
    try:
        connected.sendall(_request(node, name))
        head = bytearray()
        while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES_MAX:
            more = connected.recv(4096)
            if not more:
                break
            head += more
        _check(bytes(head))
        return Line.over(connected, f"{host}:{port}", node.patience.answer_s)
    except OSError as error:
        connected.close()
        raise ConnectionLost(f"the connection to {node.url} broke ({error})") from error
    except HeadraceError:
        connected.close()
        raise


async def async_link(node: NodeLine, name: str) -> Link:
    """The same for asyncio, with or without TLS."""
    host, port = _address(node)
    where, loop = f"{host}:{port}", asyncio.get_running_loop()
    opening = loop.create_connection(
        lambda: _Handshake(_request(node, name), loop.create_future()), host, port, ssl=node.tls
    )
    try:
        transport, handshake = await asyncio.wait_for(opening, node.patience.connect_s)
    except (OSError, TimeoutError) as error:
        raise nobody(node.url, error) from error
    try:
        _check(await asyncio.wait_for(handshake.head, node.patience.answer_s))
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


class _Handshake(asyncio.Protocol):
    """Sends the request and gathers the head of its answer."""

    def __init__(self, request: bytes, head: asyncio.Future[bytes]) -> None:
        self.head = head
        self._request = request
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        whole = b"\r\n\r\n" in self._heard or len(self._heard) > _HEAD_BYTES_MAX
        if whole and not self.head.done():
            self.head.set_result(self._heard)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.head.done():
            self.head.set_result(self._heard)


def _address(node: NodeLine) -> tuple[str, int]:
    parts = urlsplit(node.url)
    assert parts.hostname is not None
    return parts.hostname, parts.port or (443 if node.tls else 80)


def _request(node: NodeLine, name: str) -> bytes:
    parts = urlsplit(node.url)
    lines = [
        f"GET {parts.path}{path_of('journals', name, 'fj')} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: Upgrade",
        f"Upgrade: {FJ}",
    ]
    if node.token is not None:
        lines.append(f"Authorization: Bearer {node.token}")
    return "\r\n".join([*lines, "", ""]).encode()


def _check(answer: bytes) -> None:
    """Nothing, if the connection speaks FJ now; else what the node said instead is raised."""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split()
    if len(words) < 2 or not words[1].isdigit():
        raise ConnectionLost("what answers there is not a node")
    if words[1] != b"101":
        raise failure(body, int(words[1]))
