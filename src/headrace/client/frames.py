"""Asking a node for the frames that a copy lacks, and taking its answer in pieces as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from headrace.client.node_line import NodeLine, path_of
from headrace.log.claim import Claim
from headrace.log.frame import encode_header
from headrace.log.meta import salt_of


@asynccontextmanager
async def frames_of(
    line: NodeLine, place: tuple[str, str], claim: Claim | None
) -> AsyncIterator[AsyncIterator[bytes]]:
    """The answer: bytes, of which a `FrameParser` makes sense. `place`: ("streams", "orders")."""
    path = path_of(*place, "frames") + (f"?{urlencode(_query(claim))}" if claim else "")
    async with line.reading(path) as response:
        yield response.content.iter_any()


def _query(claim: Claim) -> dict[str, str]:
    numbers = {"from": claim.next_index, "head": claim.head_key, "epoch": claim.epoch}
    query = {"id": claim.id, **{name: str(value) for name, value in numbers.items()}}
    if claim.last is not None:
        query["last"] = encode_header(claim.last, salt_of(claim.id)).hex()
    return query
