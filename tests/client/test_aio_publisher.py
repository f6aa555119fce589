"""One async publisher, many coroutines: each entry once, at the index that was told, and none is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.client import aio
from server.http_node import Served, served
from stream.samples import Number


@dataclass(frozen=True, slots=True)
class Named:
    id: str


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store") as one:
        yield one


def run(node: Served, work: Callable[[aio.AsyncStore], Awaitable[Any]]) -> Any:
    async def worked() -> Any:
        async with asyncio.timeout(60), aio.connect(f"http://127.0.0.1:{node.ask.port}") as store:
            return await work(store)

    return asyncio.run(worked())


def test_entries_with_ids_that_are_published_at_the_same_time(node: Served) -> None:
    async def work(store: aio.AsyncStore) -> tuple[list[int], list[str]]:
        stream = await store.stream("s", Named, unique_by="id")
        async with await stream.publisher() as publisher:
            told = await asyncio.gather(*(publisher.publish(Named(f"n{n}")) for n in range(50)))
        return told, [entry.value.id async for entry in stream.listen()]

    told, there = run(node, work)
    assert [there[index] for index in told] == [f"n{n}" for n in range(50)]
    assert len(there) == 50


def test_indexes_are_true_while_batches_go_beside_single_entries(node: Served) -> None:
    async def work(store: aio.AsyncStore) -> None:
        stream = await store.stream("s", Number)
        async with await stream.publisher() as publisher:

            async def singles(first: int) -> dict[int, int]:
                told = {}
                for n in range(first, first + 50):
                    told[await publisher.publish(Number(n))] = n
                    await asyncio.sleep(0)
                return told

            async def batches() -> dict[int, int]:
                told = {}
                for n in range(1000, 1030, 3):
                    done = await publisher.publish_batch(pa.table({"n": [n, n + 1, n + 2]}))
                    told |= dict(zip(range(done.base_index, done.next_index), range(n, n + 3), strict=True))
                return told

            async def impatient() -> dict[int, int]:
                for _ in range(20):
                    flushing = asyncio.create_task(publisher.flush())
                    await asyncio.sleep(0)
                    flushing.cancel()
                return {}

            told: dict[int, int] = {}
            for each in await asyncio.gather(singles(0), batches(), singles(100), impatient()):
                told |= each
        there = {entry.index: entry.value.n async for entry in stream.listen()}
        assert there == told
        assert len(told) == 130

    run(node, work)


def test_who_waits_no_more_takes_nothing_from_the_others(node: Served) -> None:
    async def work(store: aio.AsyncStore) -> None:
        stream = await store.stream("s", Number)
        async with await stream.publisher() as publisher:
            for n in range(20):
                await publisher.publish(Number(n))
                first, second = (asyncio.create_task(publisher.flush()) for _ in range(2))
                await asyncio.sleep(0)
                first.cancel()
                await second
                assert publisher.durable_index == n + 1

    run(node, work)
