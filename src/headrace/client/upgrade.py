"""Upgrades: a connection to a node that begins as one HTTP request, and then speaks something else.

Bytes in, bytes out: whoever has the connection sends `request`, and feeds what comes to a `Handshake`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.client.errors import ConnectionLost
from headrace.client.node_line import NodeLine, failure

_HEAD_BYTES_MAX = 1 << 16


def address(node: NodeLine) -> tuple[str, int]:
    parts = urlsplit(node.url)
    assert parts.hostname is not None
    return parts.hostname, parts.port or (443 if node.tls else 80)


def request(node: NodeLine, path: str, word: str, headers: Mapping[str, str] | None = None) -> bytes:
    """What is sent first, to speak `word` afterwards."""
    parts = urlsplit(node.url)
    lines = [
        f"GET {parts.path}{path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: Upgrade",
        f"Upgrade: {word}",
    ]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if node.token is not None:
        lines.append(f"Authorization: Bearer {node.token}")
    return "\r\n".join([*lines, "", ""]).encode()


class Handshake:
    """The node's answer to it."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        """By their names in lower case."""
        self.rest = b""
        """What came behind the answer: it belongs to the new protocol."""
        self._heard = b""

    def feed(self, data: bytes) -> bool:
        """Whether the connection speaks the new protocol now; what the node said instead is raised.

        Without data the other side has ended the connection.
        """
        self._heard += data
        head, end, rest = self._heard.partition(b"\r\n\r\n")
        if not end:
            if not data or len(head) > _HEAD_BYTES_MAX:
                raise ConnectionLost("what answers there is not a node, or it has gone")
            return False
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split()
        if len(words) < 2 or not words[1].isdigit():
            raise ConnectionLost("what answers there is not a node")
        pairs = (line.partition(":") for line in lines[1:])
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if words[1] == "101":
            self.rest = rest
            return True
        length = self.headers.get("content-length", "")
        if data and len(rest) < min(int(length) if length.isdigit() else 0, _HEAD_BYTES_MAX):
            return False
        raise failure(rest, int(words[1]))
