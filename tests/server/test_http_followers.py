"""Readers that stay: many of them, slow ones, ones that go; and what happens to all when a node stops."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr
from headrace.kernel.errors import HeadraceError
from headrace.server.http_limits import HttpLimits
from waiting import until

from .http_node import Served, served

QUICK = HttpLimits(drain_s=0.2)


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store", QUICK) as one:
        one.ask.done("PUT", "/streams/s", {"fields": {"n": "int64", "text": "string"}})
        yield one


def silent(node: Served, path: str) -> socket.socket:
    """A reader that asks, and reads nothing of the answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", node.ask.port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def test_two_hundred_followers_get_every_entry(node: Served) -> None:
    before = threading.active_count()
    followers = [node.ask.following("/streams/s?follow=true") for _ in range(200)]
    assert node.desk.followers == 200
    for n in range(3):
        node.ask.done("POST", "/streams/s", [{"n": n}])
    for follower in followers:
        assert [(follower.next() or {}).get("n") for _ in range(3)] == [0, 1, 2]
    assert threading.active_count() - before < 30  # none has a thread of its own
    for follower in followers:
        follower.close()


def test_a_follower_that_goes_is_forgotten_though_nothing_is_published(node: Served) -> None:
    followers = [node.ask.following("/streams/s?follow=true") for _ in range(20)]
    assert node.desk.followers == 20
    for follower in followers:
        follower.close()
    until(lambda: node.desk.followers == 0)
    until(lambda: node.node.under_way == 0)


def test_a_follower_that_goes_in_the_middle_disturbs_nobody(
    node: Served, caplog: pytest.LogCaptureFixture
) -> None:
    staying = node.ask.following("/streams/s?follow=true")
    for n in range(20):
        going = node.ask.following("/streams/s?follow=true")
        node.ask.done("POST", "/streams/s", [{"n": n}])
        going.close()
        found = staying.next()
        assert found is not None
        assert found["n"] == n
    until(lambda: node.desk.followers == 1)
    staying.close()
    assert [record.getMessage() for record in caplog.records] == []


def test_a_reader_that_does_not_read_costs_little_and_disturbs_nobody(node: Served) -> None:
    slow = [silent(node, "/streams/s?follow=true") for _ in range(3)]
    until(lambda: bool(node.node.desks) and node.desk.followers == 3)
    quick = node.ask.following("/streams/s?follow=true&columns=n")
    before = resident_bytes()
    text = "x" * (1 << 20)
    for n in range(64):
        node.ask.done("POST", "/streams/s", [{"n": n, "text": text}])
        found = quick.next()
        assert found is not None
        assert found["n"] == n
    # Were what the three have not read kept for them, it would be 192 MiB.
    assert resident_bytes() - before < 64 << 20
    assert node.desk.followers == 4
    for connection in slow:
        connection.close()
    quick.close()


def test_a_reader_that_was_slow_gets_everything_in_the_end(node: Served) -> None:
    text = "x" * 100_000
    with silent(node, "/streams/s?follow=true&count=50") as slow:
        for n in range(50):
            node.ask.done("POST", "/streams/s", [{"n": n, "text": text}])
        response = http.client.HTTPResponse(slow)
        response.begin()
        assert [json.loads(line)["n"] for line in response] == list(range(50))


def test_stopping_ends_followers_cleanly_with_all_that_is_there(node: Served) -> None:
    followers = [node.ask.following("/streams/s?follow=true") for _ in range(5)]
    node.ask.done("POST", "/streams/s", [{"n": n} for n in range(100)])
    node.stop()
    for follower in followers:  # `rest` raises if the answer was cut
        assert [row["n"] for row in follower.rest()] == list(range(100))


def test_stopping_does_not_wait_for_ever_for_a_reader_that_does_not_read(node: Served) -> None:
    node.ask.done("POST", "/streams/s", [{"n": n, "text": "x" * 100_000} for n in range(100)])
    with silent(node, "/streams/s?follow=true"):
        until(lambda: node.desk.followers == 1)
        node.stop()


def test_nothing_that_was_acknowledged_is_lost_when_a_node_stops(place: Path) -> None:
    with served(place / "store", HttpLimits(drain_s=5)) as node:
        node.ask.done("PUT", "/streams/s", {"fields": {"who": "int64", "n": "int64"}})
        acknowledged: set[tuple[int, int]] = set()
        asked: set[tuple[int, int]] = set()
        followers = [node.ask.following("/streams/s?follow=true") for _ in range(3)]

        def publish(who: int) -> None:
            ask = node.ask.keeping()
            for n in range(100_000):
                asked.add((who, n))
                try:
                    answer = ask("POST", "/streams/s", [{"who": who, "n": n}])
                except (OSError, http.client.HTTPException):
                    return
                if answer.status != 200:
                    assert (answer.status, answer.error) == (503, "closed")
                    return
                acknowledged.add((who, n))

        publishers = [threading.Thread(target=publish, args=(who,)) for who in range(6)]
        for thread in publishers:
            thread.start()
        until(lambda: len(acknowledged) > 60)
        node.stop()
        for thread in publishers:
            thread.join(30)
        seen = [[(row["who"], row["n"]) for row in follower.rest()] for follower in followers]
    with hr.open(place / "store") as store:
        stored = [(entry.value["who"], entry.value["n"]) for entry in store.stream("s").listen()]
    assert len(set(stored)) == len(stored)
    assert acknowledged <= set(stored) <= asked
    for entries in seen:  # what was written last may have come after its end
        assert entries == stored[: len(entries)]


def test_a_node_that_is_stopping_says_so(place: Path) -> None:
    with served(place / "store", QUICK) as node:
        node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
        ask = node.ask.keeping()
        assert ask.done("GET", "/readyz") == {"ready": True}
        node.node.stopping = True
        assert (ask("GET", "/readyz").status, ask("GET", "/livez").status) == (503, 200)
        answer = ask("PUT", "/streams/t", {"fields": {"n": "int64"}})
        assert (answer.status, answer.error) == (503, "closed")


def test_followers_see_what_an_embedded_publisher_writes(place: Path) -> None:
    with served(place / "store", QUICK) as node, hr.open(place / "store") as store:
        node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
        follower = node.ask.following("/streams/s?follow=true")
        with store.stream("s").publisher() as publisher:
            for n in range(10):
                publisher.publish({"n": n})
                found = follower.next()
                assert found is not None
                assert found["n"] == n
            with pytest.raises(HeadraceError):
                store.stream("s").publisher()
        follower.close()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
