"""Limits of a node's HTTP face: a bound on everything that a peer sends, keeps or waits for.

Who goes beyond one is told so: 413 `too_large` for sizes, 503 `busy` for numbers, 408 `too_slow` for times.
What grows inside one request (JSON's depth, names, waiting jobs) has bounds of its own, where it is read.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    body_bytes: int = 64 << 20
    """One body; Arrow counts as what it unpacks to."""
    bodies_bytes: int = 1 << 30
    """All requests that are being taken at a time."""
    rows: int = 4_000_000
    """Entries in one body: an empty JSON line costs three bytes to send and a hundred to hold."""
    header_bytes: int = 16 << 10
    """One header."""
    headers: int = 64
    line_bytes: int = 16 << 10
    """The first line of a request: method, path and query."""

    connections: int = 8192
    connections_per_address: int = 4096
    requests: int = 8192
    """Under way at a time; a reader that follows is one."""
    streams: int = 10_000
    """Streams, and as many journals: beyond, a node makes no more."""

    head_s: float = 20.0
    """From connecting, or from its first byte, until a request's headers are there."""
    body_s: float = 20.0
    """In which at least `progress_bytes` of a body must come, and of an answer must be taken."""
    progress_bytes: int = 16 << 10
    silent_s: float = 60.0
    """A peer whose machine does not answer for so long is gone, also while there is nothing to send."""
    keep_alive_s: float = 75.0
    """A connection without a request."""
    drain_s: float = 10.0
    """How long stopping waits for requests that are under way."""
