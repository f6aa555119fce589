"""Lines that die without a word: everybody notices within the time that was set, and goes on where it was.

Requests, or answers, go nowhere from some moment on, while the proxy between is well; or no packet arrives at
either side. New connections are good. What was told before and after is accounted for exactly.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from conformance.faces import node
from headrace.client import aio
from headrace.client.errors import ConnectionLost, NoAnswer
from headrace.client.fj import aconnect, connect
from headrace.client.node_line import Patience
from headrace.journal.value import Type
from headrace.kernel.backoff import Backoff
from headrace.server.http_limits import HttpLimits
from proxy import Harm, Proxy, Swallowing
from server.http_node import served
from stream.samples import Number, in_thread
from waiting import until

from .replicas import replica

SOON = Patience(answer_s=1.0, pause=Backoff(first_s=0.005, factor=1.5, longest_s=0.1))
WAYS = ("answers", "requests", "packets")


def die(proxy: Proxy, way: str, while_dead: Callable[[], object]) -> None:
    """The line is dead from now on, for those who use it while this is done."""
    swallowing = Swallowing()
    if way == "packets":
        proxy.drop_packets()
    elif way == "answers":
        proxy.harm = swallowing
    else:
        proxy.harm_asked = swallowing
        proxy.cut_all()
    while_dead()
    until(lambda: way == "packets" or swallowing.taken_bytes > 0, "something to be swallowed")
    proxy.harm = proxy.harm_asked = Harm()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shared", [False, True])
def test_a_publisher_notices_and_publishes_each_entry_once(place: Path, way: str, shared: bool) -> None:
    def publish(start: int, stop: int) -> None:
        for n in range(start, stop):
            publisher.publish(Number(n))

    with node(place / "data") as url, Proxy.to(url) as proxy, hr.connect(proxy.url, patience=SOON) as store:
        stream = store.stream("s", Number)
        with stream.publisher(shared=shared) as publisher:
            publish(0, 10)
            publisher.flush()
            die(proxy, way, lambda: publish(10, 20))
            publish(20, 30)
            publisher.flush()
        assert [entry.value.n for entry in stream.listen()] == list(range(30))


def test_patience_begins_when_an_answer_has_not_come(place: Path) -> None:
    """As by default: an answer may take as long as a node may be away."""
    even = Patience(answer_s=3.0, away_s=3.0, pause=SOON.pause)
    with node(place / "data") as url, Proxy.to(url) as proxy, hr.connect(proxy.url, patience=even) as store:
        asking: list[Any] = []
        die(proxy, "answers", lambda: asking.append(in_thread(store.streams)))
        assert asking[0].result() == []


@pytest.mark.parametrize("way", WAYS)
def test_listeners_of_every_kind_notice_and_hear_each_entry_once(place: Path, way: str) -> None:
    async def awaited(url: str) -> list[int]:
        async with aio.connect(url, patience=SOON) as store:
            stream = await store.stream("s", Number)
            return [entry.value.n async for entry in stream.listen(until=30, follow=True)]

    with node(place / "data") as url, Proxy.to(url) as proxy, hr.connect(proxy.url, patience=SOON) as store:
        stream, called = store.stream("s", Number), list[int]()
        listener = stream.listener(lambda entry: called.append(entry.value.n))
        heard = in_thread(lambda: [each.value.n for each in stream.listen(until=30, follow=True)])
        later = in_thread(lambda: asyncio.run(awaited(proxy.url)))
        with hr.connect(url) as straight, straight.stream("s", Number).publisher() as publisher:

            def publish(start: int) -> None:
                for n in range(start, start + 10):
                    publisher.publish(Number(n))
                publisher.flush()

            publish(0)
            until(lambda: len(called) == 10)
            die(proxy, way, lambda: publish(10))
            publish(20)
            assert heard.result() == list(range(30))
            assert later.result() == list(range(30))
            until(lambda: len(called) >= 30)
        assert (called, listener.error) == (list(range(30)), None)


def test_whoever_follows_an_idle_stream_asks_again_and_again_and_misses_nothing(place: Path) -> None:
    with node(place / "data") as url, Proxy.to(url) as proxy:
        hasty = Patience(answer_s=0.1, away_s=60, pause=SOON.pause)
        with hr.connect(proxy.url, patience=hasty) as store, hr.connect(url) as straight:
            called: list[int] = []
            publisher = straight.stream("s", Number).publisher()
            listener = store.stream("s", Number).listener(lambda entry: called.append(entry.value.n))
            for n in range(3):
                before = proxy.connections
                until(lambda before=before: proxy.connections > before + 2, "silence to be noticed")
                publisher.publish(Number(n))
                publisher.flush()
                until(lambda n=n: len(called) > n)
            assert (called, listener.error) == ([0, 1, 2], None)


@pytest.mark.parametrize("way", WAYS)
def test_a_replica_notices_and_ends_identical(place: Path, way: str) -> None:
    with node(place / "source") as url, Proxy.to(url) as proxy, hr.connect(url) as straight:
        publisher = straight.stream("s", Number).publisher()

        def publish(start: int) -> None:
            for n in range(start, start + 10):
                publisher.publish(Number(n))
            publisher.flush()

        publish(0)
        with replica(place / "copy", proxy.url, patience=SOON) as running:
            running.reaches(10)
            die(proxy, way, lambda: publish(10))
            publish(20)
            running.reaches(30)
    with hr.open(place / "copy") as copied:
        assert [entry.value for entry in copied.stream("s").listen()] == [{"n": n} for n in range(30)]


@pytest.mark.parametrize("way", WAYS)
def test_a_journal_repeats_what_is_safe_and_says_of_the_rest_that_nobody_knows(place: Path, way: str) -> None:
    with (
        served(place / "store") as one,
        Proxy(("127.0.0.1", one.ask.port)) as proxy,
        hr.connect(proxy.url, patience=SOON) as store,
        hr.connect(proxy.url, patience=SOON) as other,  # its connections are its own
    ):
        jobs, there = store.journal("pages"), one.store.journal("pages")
        told: queue.Queue[Type] = queue.Queue()
        other.journal("pages").listen("k", lambda key, kind: told.put(kind))
        putting: list[Any] = []
        die(proxy, way, lambda: putting.append(in_thread(lambda: jobs.put("r"))))
        id_ = putting[0].result()
        assert [info.id for info in there.jobs()] == [id_]
        there.set("k", "text")
        while told.get(timeout=60) != Type.STRING:
            pass
        taking: list[Any] = []
        die(proxy, way, lambda: taking.append(in_thread(lambda: jobs.next(lease="1h"))))
        with pytest.raises((NoAnswer, ConnectionLost)):
            taking[0].result()
        assert there.stats().leased == (way == "answers")
        assert jobs.put("s") > id_


@pytest.mark.parametrize("tls", [False, True], ids=["own port", "upgrade"])
def test_fj_clients_that_wait_to_be_pushed_are_told_that_nobody_is_there(place: Path, tls: bool) -> None:
    """No packets: there is nothing under way whose answer could be missed."""

    async def awaited() -> None:
        async with aio.connect(proxy.url, patience=SOON) as store:
            client = await (store.fj("pages") if tls else aconnect("127.0.0.1", proxy.port, timeout=1))
            await client.listen("k")
            proxy.drop_packets()
            async for _ in client.pushes():
                pass

    with served(place / "store", HttpLimits(silent_s=1), fj="pages") as one:
        port = one.ask.port if tls else one.fj_port
        with Proxy(("127.0.0.1", port)) as proxy:
            with pytest.raises(ConnectionLost):
                asyncio.run(awaited())
            if tls:
                with hr.connect(proxy.url, patience=SOON) as store:
                    client = store.fj("pages")
            else:
                client = connect("127.0.0.1", proxy.port, timeout=1)
            client.listen("k")
            proxy.drop_packets()
            with pytest.raises(ConnectionLost):
                list(client.pushes())
            client.close()


def test_a_node_lets_go_of_those_whose_line_is_dead(place: Path) -> None:
    """Idle ones: nothing is sent to them that could be missed."""
    with (
        served(place / "store", HttpLimits(silent_s=1), fj="pages") as one,
        Proxy(("127.0.0.1", one.ask.port)) as proxy,
        hr.connect(proxy.url) as store,
    ):
        stream = store.stream("s", Number)
        following = stream.listener(lambda entry: None)
        jobs = store.fj("pages")
        jobs.put("r")
        until(lambda: one.node.desks != [] and one.desk.followers == 1)
        proxy.drop_packets()
        until(lambda: one.desk.followers == 0 and one.server.door.connections == 0, "them to be let go")
        following.stop()
