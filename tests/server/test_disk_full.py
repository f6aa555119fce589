"""The node's disk is full behind its clients: they are told, nothing acknowledged is lost, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.client import aio
from headrace.client.node_line import Patience
from headrace.kernel.backoff import Backoff
from headrace.kernel.errors import DiskFull
from small_disk import small_disk
from stream.samples import Named, Number
from waiting import until

from .http_node import Served, served

MIB = 1 << 20
ONCE = Patience(away_s=0, pause=Backoff(first_s=0.001, factor=1.0, longest_s=0.001))


class SmallDisk:
    """A file system of 48 MiB, with the node's store on it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.path / "filler").open("ab", buffering=0) as file:
            for size in (MIB, 4096):
                with pytest.raises(OSError, match="No space"):
                    while file.write(bytes(size)) == size:
                        pass
                    raise OSError("No space for all of it")

    def free(self) -> None:
        (self.path / "filler").unlink()


@pytest.fixture
def disk(place: Path) -> Iterator[SmallDisk]:
    with small_disk(place / "small", "48m") as path:
        yield SmallDisk(path)


@pytest.fixture
def node(disk: SmallDisk) -> Iterator[Served]:
    with served(disk.path / "store") as one:
        yield one


def url(node: Served) -> str:
    return f"http://127.0.0.1:{node.ask.port}"


def until_full(step: Callable[[int], object]) -> int:
    """Do it until the disk is full; how often it was done before."""
    for number in range(10_000):
        try:
            step(number)
        except DiskFull:
            return number
    raise AssertionError("the disk was never full")


def flushed(publisher: Any) -> bool:
    """An error of the background is told once, also if there is room by then; the next flush tries again."""
    try:
        publisher.flush()
    except DiskFull:
        return False
    return True


async def aflushed(publisher: Any) -> bool:
    try:
        await publisher.flush()
    except DiskFull:
        return False
    return True


@pytest.mark.parametrize("shared", [False, True])
def test_a_publisher_is_told_and_goes_on_when_there_is_room(
    node: Served, disk: SmallDisk, shared: bool
) -> None:
    with hr.connect(url(node), patience=ONCE) as store:
        stream = store.stream("s", Named)
        acknowledged = 0

        def publish(number: int) -> None:
            nonlocal acknowledged
            publisher.publish(Named(str(number) + "x" * 50_000, number))
            publisher.flush()
            acknowledged += 1

        with stream.publisher(shared=shared) as publisher:
            publish(0)
            disk.fill()
            first = until_full(lambda number: publish(acknowledged))
            before = acknowledged
            assert first == before - 1
            assert [entry.value.n for entry in stream.listen()] == list(range(before))  # it is still read
            with pytest.raises(DiskFull):  # again and again: nothing is in doubt
                publisher.flush()
            disk.free()
            until(lambda: flushed(publisher), "a flush")  # what could not be published is not forgotten
            acknowledged += 1
            publish(acknowledged)
        assert [entry.value.n for entry in stream.listen()] == list(range(before + 2))


def test_curl_is_told_and_may_repeat_it(node: Served, disk: SmallDisk) -> None:
    node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64", "text": "string"}})
    disk.fill()
    acknowledged = 0
    while True:
        row = {"n": acknowledged, "text": "x" * 50_000}
        headers = {"Headrace-Producer": "me", "Headrace-Sequence": str(acknowledged)}
        answer = node.ask("POST", "/streams/s", [row], headers)
        if answer.status != 200:
            break
        acknowledged += 1
    assert (answer.status, answer.error) == (503, "disk_full")
    assert node.ask("GET", "/readyz").status == 200
    assert node.ask("PUT", "/streams/new", {"fields": {"n": "int64"}}).error == "disk_full"
    disk.free()
    assert node.ask.done("POST", "/streams/s", [row], headers)["repeated"] is False
    assert node.ask.done("POST", "/streams/s", [row], headers)["repeated"] is True
    node.ask.done("PUT", "/streams/new", {"fields": {"n": "int64"}})
    assert [row["n"] for row in node.ask.rows("/streams/s")] == list(range(acknowledged + 1))


def test_a_journal_says_so_and_goes_on_when_there_is_room(node: Served, disk: SmallDisk) -> None:
    big = b"x" * 100_000

    def put(number: int) -> None:
        jobs.put(f"r{number}", value=big)

    with hr.connect(url(node), patience=ONCE) as store:
        jobs = store.journal("pages")
        put(0)
        disk.fill()
        put_before = until_full(lambda number: put(number + 1)) + 1
        held = jobs.stats().pending
        assert held == put_before
        disk.free()
        put(put_before)
        found = [jobs.next(delete=True) for _ in range(held + 1)]
        assert [job.resource for job in found] == [f"r{number}" for number in range(held + 1)]
        assert {job.value for job in found} == {big}


def test_the_client_for_asyncio_and_fj_are_told_as_well(node: Served, disk: SmallDisk) -> None:
    async def work() -> list[Any]:
        async with aio.connect(url(node), patience=ONCE) as store:
            stream = await store.stream("s", Number)
            publisher = await stream.publisher()
            await publisher.publish(Number(0))
            await publisher.flush()
            fj = await store.fj("pages")
            await fj.put("first")
            disk.fill()
            told = 0
            with pytest.raises(DiskFull):
                for number in range(10_000):
                    await fj.put(f"r{number}", value=b"x" * 100_000)
                    told += 1
            with pytest.raises(DiskFull):
                for _ in range(10_000):
                    await publisher.publish(Number(1))
                    await publisher.flush()
            disk.free()
            while not await aflushed(publisher):
                pass
            await fj.put("last")
            await publisher.close()
            jobs = await store.journal("pages")
            assert (await jobs.stats()).pending == told + 2
            return [entry.value.n async for entry in stream.listen()]

    heard = asyncio.run(work())
    assert heard == [0, *[1] * (len(heard) - 1)]
