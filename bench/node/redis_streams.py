"""Redis Streams in the benchmarks of the node: redis-py (its parser in C, hiredis), pipelines of XADD."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio

from bench.measure import timed
from bench.node.contender import OnEntry, Pace, nothing
from bench.node.entries import Kind
from bench.servers import HOST

GROUP = 1000
"""Commands in a pipeline, and entries that one XREAD asks for."""
_FIELD = b"d"


@dataclass(frozen=True, slots=True)
class RedisStreams:
    port: int
    name: str = "Redis Streams"

    def make(self, stream: str, kind: Kind) -> None:
        """The first XADD makes it."""

    def publish(
        self, stream: str, kind: Kind, entries: Sequence[Any], ready: Callable[[], None] = nothing
    ) -> float:
        with closing(self._client()) as client:
            ready()
            with timed() as spent:
                for at in range(0, len(entries), GROUP):
                    _add(client, stream, kind.payloads(entries[at : at + GROUP]))
        return spent[0]

    def publish_paced(self, stream: str, pace: Pace) -> None:
        with closing(self._client()) as client:
            pace.begin()
            while not pace.over:
                time.sleep(pace.rest_s)
                if due := pace.due():
                    _add(client, stream, due)

    def read(self, stream: str, kind: Kind, count: int) -> float:
        with closing(self._client()) as client, timed() as spent:
            decode, left = kind.decode, count
            for part in _parts(client, stream, block_ms=None):
                if decode is not None:
                    part = [decode(data) for data in part]
                left -= len(part)
                if not left:
                    break
        return spent[0]

    def follow(
        self, stream: str, kind: Kind, count: int, ready: Callable[[], None], on_entry: OnEntry | None
    ) -> None:
        with closing(self._client()) as client:
            decode, left = kind.decode, count
            ready()  # it begins at the start, so that none is missed
            for part in _parts(client, stream, block_ms=0):
                left -= len(part)
                if decode is not None:
                    part = [decode(data) for data in part]
                for data in part if on_entry is not None else ():
                    on_entry(data)
                if not left:
                    break

    async def follower(self, stack: AsyncExitStack, stream: str, count: int) -> asyncio.Future[Any]:
        client = redis.asyncio.Redis(host=HOST, port=self.port)
        stack.push_async_callback(client.aclose)
        found: Any = await client.xread({stream: b"0"}, count=count)
        ((_, rows),) = found.items() if isinstance(found, dict) else found
        return asyncio.ensure_future(client.xread({stream: rows[-1][0]}, block=0))

    def _client(self) -> redis.Redis:
        client = redis.Redis(HOST, self.port)
        client.ping()
        return client


def _add(client: redis.Redis, stream: str, payloads: Sequence[bytes]) -> None:
    pipeline = client.pipeline(transaction=False)
    for data in payloads:
        pipeline.xadd(stream, {_FIELD: data})
    pipeline.execute()


def _parts(client: redis.Redis, stream: str, block_ms: int | None) -> Iterator[list[Any]]:
    """What its entries hold, a thousand at a time."""
    last: Any = b"0"
    while True:
        found: Any = client.xread({stream: last}, count=GROUP, block=block_ms)
        for _, rows in found.items() if isinstance(found, dict) else found:
            last = rows[-1][0]
            yield [fields[_FIELD] for _, fields in rows]
