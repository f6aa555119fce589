"""The client of a journal, as one meets it: jobs, values, pipelines, pushes; blocking and awaited."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.client.fj import FjClient, Push, aconnect, connect
from headrace.journal.errors import BadRequest, KeyTaken, LeaseLost, Locked, NoSuchKey, WrongType
from headrace.journal.job import Job, Nothing
from headrace.journal.value import Type
from headrace.kernel.errors import Refused

from .stand_in import StandIn

# --- jobs


def test_a_job_is_put_taken_and_done(client: FjClient, server: StandIn) -> None:
    client.put("https://example.com/a", domain="example.com", priority=10, value=b"payload")
    job = client.next("example.com", lease="2h")
    assert isinstance(job, Job)
    assert (job.resource, job.domain, job.value) == ("https://example.com/a", "example.com", b"payload")
    job.done()
    assert not server.shelf.leased
    assert client.next("example.com") == Nothing(None)


def test_a_block_is_done_or_gives_the_job_back(client: FjClient, server: StandIn) -> None:
    client.put("a", value="text")
    with pytest.raises(ZeroDivisionError), client.next() as job:
        assert job
        raise ZeroDivisionError
    with client.next() as job:
        assert job
        assert isinstance(job, Job)
        assert job.value == "text"
    assert not server.shelf.pending
    assert not server.shelf.leased


def test_the_most_important_job_comes_first_and_later_ones_are_announced(client: FjClient) -> None:
    client.put("b", priority=200)
    client.put("a", priority=1)
    client.put("c", due_us=4_000_000_000_000_000)
    assert [client.next(delete=True).resource for _ in range(2)] == ["a", "b"]  # type: ignore[union-attr]
    assert client.next() == Nothing(4_000_000_000_000_000)


def test_a_lease_is_extended_and_lost(client: FjClient) -> None:
    client.put("a")
    job = client.next()
    assert isinstance(job, Job)
    before = job.lease_until_us
    job.extend("48h")
    assert job.lease_until_us > before
    job.fail(retry_in=0)
    with pytest.raises(LeaseLost, match="not leased to you"):
        job.done()


def test_a_job_that_was_taken_for_good_has_nothing_to_give_back(client: FjClient, server: StandIn) -> None:
    """Least of all the job that was put for its resource meanwhile."""
    client.put("a")
    with client.next(delete=True) as job:
        assert isinstance(job, Job)
        client.put("a")
    for verb in (job.done, job.fail, lambda: client.done(job), lambda: client.extend(job, "1h")):
        with pytest.raises(LeaseLost, match="for good"):
            verb()
    assert b"a" in server.shelf.pending
    client.done("a")
    assert not server.shelf.pending


def test_many_jobs_are_taken_and_done_together(client: FjClient, server: StandIn) -> None:
    with client.pipeline() as pipeline:
        for number in range(1000):
            pipeline.put(f"job {number}", value=number)
    assert pipeline.results() == [None] * 1000
    jobs = client.next_batch(600, lease="5m")
    assert {job.value for job in jobs} == set(range(600))
    assert client.done_batch(jobs) == []
    assert len(server.shelf.pending) == 400
    assert not server.shelf.leased
    assert client.done_batch(jobs[:2]) == jobs[:2]


def test_many_jobs_are_put_in_one_request(client: FjClient) -> None:
    client.put_batch([f"job {number}" for number in range(1000)], values=range(1000), priority=3)
    assert [job.value for job in client.next_batch(1000)] == list(range(1000))
    with pytest.raises(BadRequest, match="2 resources, but 1 values"):
        client.put_batch(["a", "b"], values=[1])


def test_waiting_for_a_job_ends_when_somebody_puts_one(client: FjClient, server: StandIn) -> None:
    def put_soon() -> None:
        with connect(port=server.port) as other:
            other.put("a", domain="mine")

    timer = threading.Timer(0.05, put_soon)
    timer.start()
    job = client.next("mine", wait="30s")
    assert isinstance(job, Job)
    assert [request.function for request in server.shelf.seen].count(11) == 2  # asked, was woken, asked
    timer.join()


def test_waiting_for_a_job_ends_when_it_becomes_due(client: FjClient, server: StandIn) -> None:
    client.put("a", after=0.05)
    assert client.next(wait="30s")
    assert client.next(wait=0.01) == Nothing(None)


# --- values


def test_values_keep_their_types(client: FjClient) -> None:
    for value in (None, b"", b"bytes", "", "text é", 0, -7, 1.5, True, False):
        client.set("k", value)
        found = client.get("k")
        assert found is not None
        assert (found.value, type(found.value)) == (value, type(value))
        probed = client.probe("k")
        assert probed is not None
        assert probed.type == found.type


def test_a_key_without_a_value(client: FjClient) -> None:
    assert client.get("k") is None
    assert client.probe("k") is None
    for verb in (client.delete, client.flip, client.lock):
        with pytest.raises(NoSuchKey, match="'k'"):
            verb("k")


def test_the_server_changes_values(client: FjClient) -> None:
    client.set("n", 40)
    assert client.add("n", 2) == 42
    client.set("b", False)
    assert client.flip("b") is True
    client.set("s", b"abc")
    client.resize("s", 5)
    assert client.get("s").value == b"abc\0\0"  # type: ignore[union-attr]
    client.rename("n", "m")
    client.link("m", "o")
    assert [client.get(key) is not None for key in "nmo"] == [False, True, True]
    with pytest.raises(WrongType, match="two numbers"):
        client.add("s", 1)
    with pytest.raises(KeyTaken):
        client.set("s", b"", overwrite=False)


def test_the_larger_timestamp_wins(client: FjClient) -> None:
    client.set("k", "new", timestamp_us=20)
    client.set("k", "old", timestamp_us=10)
    found = client.get("k")
    assert found is not None
    assert (found.value, found.timestamp_us) == ("new", 20)


def test_expiry_leases_and_locks(client: FjClient, server: StandIn) -> None:
    client.set("k", 1, ttl="1m", timestamp_us=1_000_000)
    found = client.get("k", lease="1h")
    assert found is not None
    assert (found.expires_us, found.locked) == (61_000_000, False)
    found = client.get("k", touch="1h")
    assert found is not None
    assert found.locked
    assert client.get("k", skip_worked_on=True) is None
    client.lock("k")
    with connect(port=server.port) as other, pytest.raises(Locked):
        other.set("k", 2)
    client.unlock("k")
    client.set("k", 2)


def test_ranges_and_matches_are_read_page_by_page(client: FjClient, server: StandIn) -> None:
    for number in range(10):
        client.set(f"k{number}", number)
    server.shelf.seen.clear()
    values = client.range("k1", "k8")
    assert next(values).value == 1
    assert len(server.shelf.seen) == 1  # three a page
    assert [found.value for found in values] == [2, 3, 4, 5, 6, 7, 8]
    assert [found.value for found in client.range("k0", "k9", 5)] == [0, 1, 2, 3, 4]
    assert [found.key for found in client.match("[02468]$")] == ["k0", "k2", "k4", "k6", "k8"]


def test_changes_are_pushed_to_those_who_listen(client: FjClient, server: StandIn) -> None:
    assert client.listen("k") is None
    with connect(port=server.port) as other:
        other.set("k", "text")
        other.set("j", "text")
    assert next(client.pushes()) == Push("k", Type.STRING)
    assert list(client.pushes(wait=0)) == []


# --- pipelines


def test_each_call_of_a_pipeline_has_its_own_result(client: FjClient) -> None:
    with client.pipeline() as pipeline:
        stored = pipeline.set("n", 1)
        added, missing, found = pipeline.add("n", 1), pipeline.flip("none"), pipeline.get("n")
        with pytest.raises(Refused, match="not sent yet"):
            added.result()
    assert stored.result() is None
    assert added.result() == 2
    assert found.result().value == 2  # type: ignore[union-attr]
    with pytest.raises(NoSuchKey):
        missing.result()
    with pytest.raises(NoSuchKey):
        pipeline.results()


def test_a_pipeline_of_large_values_does_not_block_itself(client: FjClient) -> None:
    """Both sides have more to say than their sockets hold."""
    with client.pipeline() as pipeline:
        for number in range(20):
            pipeline.set(f"k{number}", bytes(1 << 20))
        found = [pipeline.get(f"k{number}") for number in range(20)]
    assert all(len(each.result().value) == 1 << 20 for each in found)  # type: ignore[arg-type,union-attr]


# --- awaited


def test_the_same_verbs_are_awaited(server: StandIn) -> None:
    async def talk() -> None:
        async with await aconnect(port=server.port) as client:
            await asyncio.gather(*(client.put(f"job {number}", value=number) for number in range(3000)))
            jobs = await client.next_batch(2999, lease="1m")
            await client.done_batch(jobs)
            job = await client.next(wait=5)
            assert isinstance(job, Job)
            with pytest.raises(BadRequest, match=r"await client.done\(job\)"):
                job.done()
            await client.fail(job, retry_in=0)
            for number in range(10):
                await client.set(f"k{number}", number)
            assert [found.value async for found in client.range("k0", "k9")] == list(range(10))
            assert await client.get("none") is None
            assert await client.add("k1", 1.0 if False else 1) == 2
            with pytest.raises(NoSuchKey):
                await client.flip("none")

    asyncio.run(talk())


def test_waiting_and_listening_leave_the_connection_to_others(server: StandIn) -> None:
    async def talk() -> None:
        async with await aconnect(port=server.port) as client:
            waiting = asyncio.create_task(client.next("mine", wait="30s"))
            await client.listen("k")
            await asyncio.sleep(0.02)
            await client.set("k", 1)
            async for push in client.pushes():
                assert push == Push("k", Type.INTEGER)
                break
            assert not waiting.done()
            await client.put("a", domain="mine")
            assert isinstance(await waiting, Job)
            assert [push async for push in client.pushes(wait=0)] == []

    asyncio.run(talk())
