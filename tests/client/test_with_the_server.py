"""The client and the forwarder with the server of headrace, and a real journal behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.fj import FjClient, Push, aconnect, connect
from headrace.client.forward import Forwarder, Report
from headrace.client.spool import Spool
from headrace.journal.errors import KeyTaken, LeaseLost, Locked, NoSuchKey, OutOfRange, WrongType
from headrace.journal.job import Job, Nothing
from headrace.journal.value import Type
from headrace.kernel.errors import Refused
from headrace.wire.errors import ProtocolError

from .real_server import in_thread


@pytest.fixture
def port(place: Path) -> Iterator[int]:
    with in_thread(place / "store") as port:
        yield port


@pytest.fixture
def jobs(port: int) -> Iterator[FjClient]:
    with connect(port=port) as client:
        yield client


def taken(found: Job | Nothing) -> Job:
    assert isinstance(found, Job)
    return found


def test_jobs_from_put_to_done(jobs: FjClient) -> None:
    jobs.put("https://example.com/a", priority=10, value=b"old")
    jobs.put("https://example.com/a", priority=10, value=b"new")
    jobs.put("https://other.example/b", priority=1)
    jobs.put("c", domain="example.com", priority=5, value={"text": "x"}["text"])
    assert taken(jobs.next("example.com")).value == "x"
    job = taken(jobs.next("example.com", lease="2h"))
    assert (job.resource, job.value) == ("https://example.com/a", b"new")
    assert isinstance(jobs.next("example.com"), Nothing)
    job.extend("3h")
    job.done()
    with pytest.raises(LeaseLost):
        job.done()
    assert taken(jobs.next()).resource == "https://other.example/b"


def test_a_job_that_is_given_back_keeps_what_it_is(jobs: FjClient) -> None:
    jobs.put("a", priority=3, value=b"payload")
    jobs.put("b", priority=4)
    taken(jobs.next()).fail(retry_in=0)
    job = taken(jobs.next())
    assert (job.resource, job.value) == ("a", b"payload")
    job.fail()  # due later: it has failed twice
    assert taken(jobs.next()).resource == "b"
    nothing = jobs.next()
    assert isinstance(nothing, Nothing)
    assert nothing.next_at_us is not None


def test_jobs_by_the_thousand(jobs: FjClient) -> None:
    with jobs.pipeline() as pipeline:
        for number in range(3000):
            pipeline.put(f"job {number}", value=number)
    pipeline.results()
    found = jobs.next_batch(2000) + jobs.next_batch(2000)
    assert [job.value for job in found] == list(range(3000))
    jobs.done_batch(found)
    assert jobs.next() == Nothing(None)
    assert jobs.next_batch(5) == []
    jobs.put_batch([f"https://example.com/{n}" for n in range(100)], values=[b"x"] * 100)
    found = jobs.next_batch(200, "example.com", lease="1m")
    assert len(found) == 100
    assert jobs.done_batch(found) == []
    assert jobs.done_batch(found[:3]) == found[:3]


def test_taking_for_good(jobs: FjClient) -> None:
    jobs.put("a")
    with jobs.next(delete=True) as job:
        assert job
    assert jobs.next() == Nothing(None)


def test_waiting_is_ended_by_a_put_and_by_time(jobs: FjClient, port: int) -> None:
    def put_soon() -> None:
        with connect(port=port) as other:
            other.put("a", domain="mine")

    timer = threading.Timer(0.05, put_soon)
    timer.start()
    assert taken(jobs.next("mine", wait=30)).resource == "a"
    timer.join()
    jobs.put("b", after=0.05)
    assert taken(jobs.next(wait=30)).resource == "b"
    assert isinstance(jobs.next(wait=0.01), Nothing)


def test_values_and_what_can_be_done_to_them(jobs: FjClient, port: int) -> None:
    for value in (None, b"", b"bytes", "", "é", 0, -7, 1.5, True, False):
        jobs.set("k", value)
        found = jobs.get("k")
        assert found is not None
        assert (found.value, type(found.value)) == (value, type(value))
    jobs.set("n", 40)
    assert jobs.add("n", 2) == 42
    with pytest.raises(OutOfRange):
        jobs.add("n", 2**63 - 1)
    with pytest.raises(WrongType):
        jobs.flip("n")
    assert jobs.flip("k") is True
    jobs.rename("n", "m")
    jobs.link("m", "o")
    assert [jobs.probe(key) is not None for key in "nmo"] == [False, True, True]
    jobs.set("s", "text")
    jobs.resize("s", 2)
    assert jobs.get("s").value == "te"  # type: ignore[union-attr]
    jobs.lock("s")
    with connect(port=port) as other, pytest.raises(Locked):
        other.set("s", 1)
    jobs.unlock("s")
    jobs.delete("s")
    with pytest.raises(NoSuchKey):
        jobs.delete("s")
    with pytest.raises(KeyTaken):
        jobs.set("k", 1, overwrite=False)


def test_timestamps_expiry_and_leases_of_values(jobs: FjClient) -> None:
    jobs.set("k", "new", timestamp_us=20)
    jobs.set("k", "old", timestamp_us=10)
    assert jobs.get("k").value == "new"  # type: ignore[union-attr]
    jobs.set("e", 1, ttl="1h")
    before = jobs.probe("e")
    assert before is not None
    assert before.expires_us is not None
    jobs.get("e", touch="9h")
    after = jobs.probe("e")
    assert after is not None
    assert after.expires_us > before.expires_us  # type: ignore[operator]
    assert not after.locked
    assert jobs.get("e", lease="1m", skip_worked_on=True) is not None
    assert jobs.get("e", skip_worked_on=True) is None
    assert jobs.probe("e").locked  # type: ignore[union-attr]


def test_many_values_are_read_in_pages(jobs: FjClient) -> None:
    with jobs.pipeline() as pipeline:
        for number in range(2500):
            pipeline.set(f"k{number:04}", number)
    pipeline.results()
    assert [found.value for found in jobs.range("k0000", "k9999")] == list(range(2500))
    assert [found.value for found in jobs.range(count=1500)] == list(range(1500))
    assert [found.value for found in jobs.match("[05]$")] == list(range(0, 2500, 5))
    with pytest.raises(Refused):
        list(jobs.match("("))


def test_pushes_tell_of_changes(jobs: FjClient, port: int) -> None:
    assert jobs.listen("k") is None
    with connect(port=port) as other:
        other.set("k", 1)
    assert next(jobs.pushes()) == Push("k", Type.INTEGER)
    with connect(port=port) as other:
        other.delete("k")
    assert next(jobs.pushes()) == Push("k", Type.VOID)


def test_a_value_that_is_too_large_is_the_last_one(jobs: FjClient, port: int) -> None:
    with pytest.raises(ProtocolError, match="at most 1048576"):
        jobs.set("k", bytes((1 << 20) + 1))
    with connect(port=port) as other:
        other.set("k", bytes(1 << 20))


def test_awaited_calls_run_together(port: int) -> None:
    async def talk() -> None:
        async with await aconnect(port=port) as client:
            waiting = asyncio.create_task(client.next("late", wait=30))
            await asyncio.gather(*(client.put(f"job {number}") for number in range(2000)))
            await client.done_batch(await client.next_batch(2000))
            assert not waiting.done()
            await client.put("a", domain="late")
            assert isinstance(await waiting, Job)

    asyncio.run(talk())


def test_the_forwarder_brings_the_spool_to_the_journal(place: Path, port: int, jobs: FjClient) -> None:
    with Spool(place / "spool") as spool:
        spool.put("https://example.com/a", value=b"payload")
        spool.set("k", "text")
        spool.set("large", bytes(2 << 20))
        spool.set("k", "newer")
        spool.delete("never there")
    report = Forwarder(place / "spool", "127.0.0.1", port).run(once=True)
    assert (report.sent, report.refused) == (4, 1)
    assert taken(jobs.next("example.com")).value == b"payload"
    assert jobs.get("k").value == "newer"  # type: ignore[union-attr]
    assert Forwarder(place / "spool", "127.0.0.1", port).run(once=True) == Report()
