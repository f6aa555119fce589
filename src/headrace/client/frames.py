"""Asking a node for the frames that a copy lacks, and taking its answer in pieces as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlencode

import aiohttp

from headrace.client.errors import ConnectionLost
from headrace.client.node_line import NodeLine, path_of
from headrace.log.claim import Claim
from headrace.log.frame import encode_header
from headrace.log.meta import salt_of

SILENT_S = 30.0
"""A node says something every few seconds: one that is silent for this long is gone."""


@asynccontextmanager
async def frames_of(line: NodeLine, name: str, claim: Claim | None) -> AsyncIterator[AsyncIterator[bytes]]:
    """The answer: bytes, of which a `FrameParser` makes sense."""
    path = path_of("streams", name, "frames") + (f"?{urlencode(_query(claim))}" if claim else "")
    async with line.reading(path) as response, aclosing(_pieces(response, line.url)) as pieces:
        yield pieces


async def _pieces(response: aiohttp.ClientResponse, url: str) -> AsyncGenerator[bytes, None]:
    while True:
        try:
            async with asyncio.timeout(SILENT_S):
                piece = await response.content.readany()
        except TimeoutError as error:
            raise ConnectionLost(f"{url} said nothing for {SILENT_S:g} s") from error
        if not piece:
            return
        yield piece


def _query(claim: Claim) -> dict[str, str]:
    numbers = {"from": claim.next_index, "head": claim.head_key, "epoch": claim.epoch}
    query = {"id": claim.id, **{name: str(value) for name, value in numbers.items()}}
    if claim.last is not None:
        query["last"] = encode_header(claim.last, salt_of(claim.id)).hex()
    return query
