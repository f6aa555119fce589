"""headrace in the benchmarks of the node: `headrace serve` and hr.connect."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import headrace as hr
from bench.measure import timed
from bench.node.contender import OnEntry, Pace, nothing
from bench.node.entries import Kind
from bench.servers import HOST
from headrace.client.aio import connect


@dataclass(frozen=True, slots=True)
class Headrace:
    port: int
    name: str = "headrace"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def make(self, stream: str, kind: Kind) -> None:
        with hr.connect(self.url) as store:
            store.stream(stream, kind.type, order_by=kind.order_by)

    def publish(
        self, stream: str, kind: Kind, entries: Sequence[Any], ready: Callable[[], None] = nothing
    ) -> float:
        with hr.connect(self.url) as store:
            there = store.stream(stream, kind.type, order_by=kind.order_by)
            with there.publisher() as publisher:
                ready()
                with timed() as spent:
                    publish = publisher.publish
                    for entry in entries:
                        publish(entry)
                    publisher.flush()
        return spent[0]

    def publish_paced(self, stream: str, pace: Pace) -> None:
        with hr.connect(self.url) as store, store.stream(stream, bytes).publisher() as publisher:
            pace.begin()
            while not pace.over:
                time.sleep(pace.rest_s)
                for entry in pace.due():
                    publisher.publish(entry)

    def read(self, stream: str, kind: Kind, count: int) -> float:
        with hr.connect(self.url) as store:
            there = store.stream(stream, kind.type, order_by=kind.order_by)
            with timed() as spent:
                deque(there.listen(), maxlen=0)
        return spent[0]

    def read_batches(self, stream: str) -> float:
        """The same as Arrow."""
        with hr.connect(self.url) as store:
            there = store.stream(stream)
            with timed() as spent:
                deque(there.listen_batches(), maxlen=0)
        return spent[0]

    def follow(
        self, stream: str, kind: Kind, count: int, ready: Callable[[], None], on_entry: OnEntry | None
    ) -> None:
        with hr.connect(self.url) as store:
            there = store.stream(stream, kind.type, order_by=kind.order_by)
            ready()  # it begins at the start, so that none is missed
            entries = there.listen(count=count, follow=True)
            if on_entry is None:
                deque(entries, maxlen=0)
                return
            for entry in entries:
                on_entry(entry.value)

    async def follower(self, stack: AsyncExitStack, stream: str, count: int) -> asyncio.Future[Any]:
        store = await stack.enter_async_context(connect(self.url))
        feed = (await store.stream(stream)).feed(0, None, follow=True)
        stack.callback(feed.close)

        async def until(index: int) -> None:
            while feed.index < index:
                await feed.more()

        await until(count)
        return asyncio.ensure_future(until(2 * count))
