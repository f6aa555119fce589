"""NATS JetStream in the benchmarks of the node: nats-py on uvloop, streams in files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import nats
import uvloop
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from bench.measure import timed
from bench.node.contender import OnEntry, Pace, nothing
from bench.node.entries import Kind
from bench.servers import HOST

_FETCH = 1000
_UNBOUNDED = {"pending_msgs_limit": -1, "pending_bytes_limit": -1}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JetStream:
    port: int
    name: str
    push: bool = False
    """Read by a push consumer instead of `fetch`."""

    def make(self, stream: str, kind: Kind) -> None:
        config = StreamConfig(name=stream, subjects=[stream], storage=StorageType.FILE)
        self._run(lambda jetstream: jetstream.add_stream(config))

    def publish(
        self, stream: str, kind: Kind, entries: Sequence[Any], ready: Callable[[], None] = nothing
    ) -> float:
        async def publish(jetstream: JetStreamContext) -> float:
            ready()
            with timed() as spent:
                for entry in entries:
                    await jetstream.publish_async(stream, kind.encode(entry) if kind.encode else entry)
                await jetstream.publish_async_completed()
            return spent[0]

        return self._run(publish)

    def publish_paced(self, stream: str, pace: Pace) -> None:
        async def publish(jetstream: JetStreamContext) -> None:
            pace.begin()
            while not pace.over:
                await asyncio.sleep(pace.rest_s)
                for entry in pace.due():
                    await jetstream.publish_async(stream, entry)
            await jetstream.publish_async_completed()

        self._run(publish)

    def read(self, stream: str, kind: Kind, count: int) -> float:
        async def read(jetstream: JetStreamContext) -> float:
            with timed() as spent:
                await _pull(jetstream, stream, kind, count)
            return spent[0]

        async def pushed(jetstream: JetStreamContext) -> float:
            with timed() as spent:
                await _pushed(jetstream, stream, kind, count, lambda: None, None)
            return spent[0]

        return self._run(pushed if self.push else read)

    def follow(
        self, stream: str, kind: Kind, count: int, ready: Callable[[], None], on_entry: OnEntry | None
    ) -> None:
        self._run(lambda jetstream: _pushed(jetstream, stream, kind, count, ready, on_entry))

    async def follower(self, stack: AsyncExitStack, stream: str, count: int) -> asyncio.Future[Any]:
        connection = await nats.connect(f"nats://{HOST}:{self.port}")
        stack.push_async_callback(connection.close)
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        subscription = await connection.jetstream().subscribe(stream, stream=stream, config=config)

        async def take() -> None:
            for _ in range(count):
                await subscription.next_msg(timeout=None)

        await take()
        return asyncio.ensure_future(take())

    def _run(self, work: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        async def connected() -> T:
            connection = await nats.connect(f"nats://{HOST}:{self.port}")
            try:
                return await work(connection.jetstream())
            finally:
                await connection.close()

        return in_loop(connected())


def in_loop(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def _pull(jetstream: JetStreamContext, stream: str, kind: Kind, count: int) -> None:
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await jetstream.pull_subscribe(stream, stream=stream, config=config)
    decode = kind.decode
    while count > 0:
        messages = await subscription.fetch(_FETCH)
        count -= len(messages)
        if decode is not None:
            [decode(message.data) for message in messages]
    await subscription.unsubscribe()


async def _pushed(
    jetstream: JetStreamContext,
    stream: str,
    kind: Kind,
    count: int,
    ready: Callable[[], None],
    on_entry: OnEntry | None,
) -> None:
    """A push consumer without acknowledgements; messages come to a callback, as is quickest."""
    over = asyncio.Event()
    decode, left = kind.decode, count

    async def take(message: Any) -> None:
        nonlocal left
        data = message.data if decode is None else decode(message.data)
        if on_entry is not None:
            on_entry(data)
        left -= 1
        if not left:
            over.set()

    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await jetstream.subscribe(stream, stream=stream, cb=take, config=config, **_UNBOUNDED)
    ready()
    await over.wait()
    await subscription.unsubscribe()
