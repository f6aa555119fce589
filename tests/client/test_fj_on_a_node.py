"""FJ over a node's own address: blocking, in the loop's thread, async."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.server.http_node import Served, served

import headrace as hr
from headrace.client import aio
from headrace.client.blocking import FjClient
from headrace.client.errors import CannotConnect, ConnectionLost
from headrace.client.loop_line import LoopLine
from headrace.client.loop_thread import LoopThread
from headrace.client.node_line import Patience
from headrace.journal.errors import KeyTaken, LeaseLost, NoSuchKey
from headrace.kernel.errors import BadName, Broken, Closed, HeadraceError


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store") as one:
        yield one


@pytest.fixture
def url(node: Served) -> str:
    return f"http://127.0.0.1:{node.ask.port}"


def opened(way: str, store: Any, name: str) -> FjClient:
    """As a socket, or as TLS needs it."""
    if way == "socket":
        client: FjClient = store.fj(name)
        return client
    loop = LoopThread.shared()
    return FjClient(LoopLine(loop, loop.run(store._store.fj_link(name))))


@pytest.mark.parametrize("way", ["socket", "loop"])
def test_every_verb_is_there(url: str, way: str) -> None:
    with hr.connect(url) as store, opened(way, store, "pages") as jobs:
        jobs.put("http://a/1", priority=3, value="v")
        jobs.put_batch(["http://a/2", "http://a/3"], domain="a")
        job = jobs.next("a", lease="1h")
        assert job
        assert (job.resource, job.value) == ("http://a/1", "v")
        job.extend("2h")
        job.done()
        with pytest.raises(LeaseLost):
            job.done()
        two = jobs.next_batch(5, "a", lease="1h")
        assert len(two) == 2
        jobs.fail(two[0], 0)
        assert jobs.done_batch([two[1]]) == []
        assert jobs.next("a", wait="30s", delete=True)
        assert not jobs.next("a", wait="1ms")
        jobs.set("k", 5)
        assert jobs.add("k", 2) == 7
        jobs.set("b", True)
        assert jobs.flip("b") is False
        jobs.set("raw", b"abc")
        jobs.resize("raw", 2)
        jobs.link("raw", "also")
        jobs.rename("raw", "other")
        jobs.lock("k")
        jobs.unlock("k")
        found = jobs.get("also")
        assert found is not None
        assert found.value == b"ab"
        assert jobs.probe("none") is None
        assert [value.key for value in jobs.range("a", "k")] == ["also", "b", "k"]
        assert [value.key for value in jobs.match("^o")] == ["other"]
        with pytest.raises(KeyTaken):
            jobs.set("k", 1, overwrite=False)
        jobs.delete("k")
        with pytest.raises(NoSuchKey):
            jobs.delete("k")
        with jobs.pipeline() as many:
            for number in range(2000):
                many.put(f"r{number}")
        many.results()
        assert store.journal("pages").stats().pending == 2000


@pytest.mark.parametrize("way", ["socket", "loop"])
def test_whoever_listens_is_pushed(url: str, way: str) -> None:
    with hr.connect(url) as store, opened(way, store, "pages") as jobs:
        jobs.set("k", 1)
        jobs.listen("k")
        store.journal("pages").set("k", "text")
        assert [push.key for push in jobs.pushes(wait="1s")] == ["k"]


def test_several_journals_are_spoken_to_at_once(url: str) -> None:
    with hr.connect(url) as store, ThreadPoolExecutor(6) as pool:

        def work(number: int) -> int:
            with opened("loop" if number % 2 else "socket", store, f"j{number % 3}") as jobs:
                for each in range(30):
                    jobs.put(f"{number}-{each}")
                return sum(bool(jobs.next(delete=True)) for _ in range(30))

        assert list(pool.map(work, range(6))) == [30] * 6
        assert [store.journal(f"j{number}").stats().pending for number in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("way", ["socket", "loop"])
def test_a_node_that_stops_ends_connections(node: Served, url: str, way: str) -> None:
    with hr.connect(url, patience=Patience(away_s=0.1)) as store:
        jobs, idle = opened(way, store, "pages"), opened(way, store, "other")
        jobs.put("r")
        node.stop()
        for client in (jobs, idle):
            with pytest.raises(HeadraceError) as raised:
                client.put("s")
            assert isinstance(raised.value, (Closed, Broken, ConnectionLost))
            client.close()
        with pytest.raises(CannotConnect):
            opened(way, store, "pages")
    with hr.open(node.store.path) as again:
        assert again.journal("pages").stats().pending == 1


def test_what_is_refused_is_told_before_fj_begins(node: Served, url: str) -> None:
    with hr.connect(url) as store, pytest.raises(BadName):
        store.fj("../out")
    assert node.ask("GET", "/journals/pages/fj").error in ("refused", "not_found")


def test_calls_that_run_at_once_share_a_connection(url: str) -> None:
    async def work() -> int:
        async with aio.connect(url) as store:
            async with await store.fj("pages") as jobs:
                await asyncio.gather(*(jobs.put(f"r{number}") for number in range(300)))
            return (await (await store.journal("pages")).stats()).pending

    assert asyncio.run(work()) == 300
