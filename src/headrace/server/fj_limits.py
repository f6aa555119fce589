"""What bounds the peers of an FJ server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    connections: int = 1000
    requests_per_s: float | None = None
    """On one connection; a quicker one is slowed down."""
    key_bytes: int = 65_535
    value_bytes: int = 16 << 20
    waiting_bytes: int = 8 << 20
    """Replies that may wait for one peer before nothing more is read from it."""
    listened_keys: int = 10_000
    """Keys that one connection may listen to."""
    listened_bytes: int = 1 << 20
    """How large they may be together, with the domains that it waits for."""
    waited_domains: int = 100
    """Domains of which one connection may wait for a job: each is looked at whenever a job comes."""
    held_bytes: int = 256 << 20
    """Requests of all connections that have come in part; at least room for two of the largest."""
    silent_s: float = 60.0
    """A peer whose machine does not answer for so long is gone, also while there is nothing to send."""
    drain_s: float = 5.0
    """How long stopping waits for replies to leave."""
