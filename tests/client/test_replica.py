"""Replicas: local copies of a node's streams, that go on after whatever happens to the line or the node."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import headrace as hr
from headrace.kernel.errors import Diverged, IsReplica, NoPermission, NotFound, Trimmed
from headrace.log import Log
from headrace.log.repair import repair
from headrace.stream.errors import PublisherTaken, StreamExists
from log.copies import past
from log.samples import flip
from proxy import Cutting, Delaying, Proxy
from server.http_node import Served, served
from waiting import until

from .replicas import replica

FIELDS = {"fields": {"n": "int64", "text": "string"}}


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "source") as one:
        one.ask.done("PUT", "/streams/s", FIELDS)
        yield one


def url(node: Served) -> str:
    return f"http://127.0.0.1:{node.ask.port}"


def publish(node: Served, first: int, stop: int, text: str = "") -> None:
    node.ask.done("POST", "/streams/s", [{"n": n, "text": text or str(n)} for n in range(first, stop)])


def numbers(store: Path, name: str = "s") -> list[int]:
    with hr.open(store) as opened:
        return [entry.value["n"] for entry in opened.stream(name).listen()]


def log_of(store: Path, name: str = "s") -> Path:
    return store / "streams" / name


def test_a_replica_gets_what_is_there_and_what_comes(node: Served, place: Path) -> None:
    publish(node, 0, 5)
    with replica(place / "copy", url(node)) as running:
        running.reaches(5)
        for n in range(5, 20):
            publish(node, n, n + 1)
        running.reaches(20)
        assert running.state.phase == "following"
        until(lambda: running.state.lag == 0)
        assert numbers(place / "copy") == list(range(20))
        assert past(log_of(place / "copy")) == past(log_of(place / "source"))
    assert running.state.phase == "ended"


def test_only_the_first_missing_index_and_what_follows_is_sent_again(node: Served, place: Path) -> None:
    publish(node, 0, 1000, "x" * 100)
    with replica(place / "copy", url(node), once=True) as first:
        assert first.ended() is None
    assert (first.state.entries, first.state.connections) == (1000, 1)
    publish(node, 1000, 1003)
    with replica(place / "copy", url(node), once=True) as second:
        assert second.ended() is None
    assert second.state.entries == 3
    assert second.state.bytes < first.state.bytes / 10
    assert numbers(place / "copy") == list(range(1003))


def test_only_the_replica_publishes_to_the_copy(node: Served, place: Path) -> None:
    publish(node, 0, 3)
    with replica(place / "copy", url(node), local="orders") as running, hr.open(place / "copy") as store:
        running.reaches(3)
        with pytest.raises(IsReplica, match=url(node)):
            store.stream("orders").publisher()
        with pytest.raises(PublisherTaken):
            store.unfollow("orders")
        with replica(place / "copy", url(node), local="orders") as second:
            assert isinstance(second.ended(), PublisherTaken)
    with hr.open(place / "copy") as store:
        with pytest.raises(IsReplica):
            store.stream("orders").publisher()
        assert store.unfollow("orders").name == "s"
        with store.stream("orders").publisher() as publisher:
            assert publisher.publish_batch([{"n": 3, "text": "mine"}]).base_index == 3
    with replica(place / "copy", url(node), local="orders") as again:
        assert isinstance(again.ended(), StreamExists)


def test_a_node_refuses_to_publish_to_a_copy(node: Served, place: Path) -> None:
    publish(node, 0, 3)
    with replica(place / "copy", url(node), once=True) as running:
        running.ended()
    with served(place / "copy") as second:
        answer = second.ask("POST", "/streams/s", [{"n": 3}])
        assert (answer.status, answer.error) == (409, "is_replica")
        assert second.ask.done("GET", "/streams/s/info")["copy_of"] == {"url": url(node), "name": "s"}


def test_a_chain_of_nodes_ends_the_same_and_goes_on_when_one_comes_back(node: Served, place: Path) -> None:
    publish(node, 0, 10)
    with replica(place / "second", url(node)) as second:
        second.reaches(10)
        with served(place / "second") as middle, replica(place / "third", url(middle)) as third:
            third.reaches(10)
            publish(node, 10, 20)
            third.reaches(20)
        publish(node, 20, 30)
        second.reaches(30)
        with served(place / "second") as middle, replica(place / "third", url(middle)) as third:
            third.reaches(30)
    with replica(place / "third", url(node), once=True) as past_the_middle:
        assert past_the_middle.ended() is None
    assert past(log_of(place / "third")) == past(log_of(place / "source"))


def test_ten_replicas_and_one_that_reads_nothing(node: Served, place: Path) -> None:
    for first in range(0, 64, 4):
        publish(node, first, first + 4, "x" * (1 << 18))
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", node.ask.port))
        silent.sendall(b"GET /streams/s/frames HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until(lambda: bool(node.desk.copies))
        (sending,) = node.desk.copies
        runnings = [replica(place / f"copy-{n}", url(node), once=True) for n in range(10)]
        for each in runnings:
            with each as running:
                assert running.ended() is None
        assert sending.lag > 32  # nothing is read ahead of what it takes
    for n in range(10):
        assert past(log_of(place / f"copy-{n}")) == past(log_of(place / "source"))
    until(lambda: not node.desk.copies)


def test_a_line_that_delays_and_breaks_at_any_byte(node: Served, place: Path) -> None:
    lot = Random(5)
    with (
        Proxy(("127.0.0.1", node.ask.port)) as proxy,
        replica(place / "copy", proxy.url, once=False) as running,
    ):
        proxy.harm = Cutting(lot, 20_000)
        for first in range(0, 400, 20):
            publish(node, first, first + 20, "x" * 50)
        until(lambda: proxy.cuts >= 5 or running.state.next_index == 400)
        proxy.harm = Delaying(lot, 0.001)
        running.reaches(400)
        proxy.cut_all()
        publish(node, 400, 410)
        running.reaches(410)
    assert numbers(place / "copy") == list(range(410))
    assert past(log_of(place / "copy")) == past(log_of(place / "source"))


def test_it_waits_for_a_node_that_is_away(place: Path) -> None:
    with served(place / "source") as node:
        node.ask.done("PUT", "/streams/s", FIELDS)
        publish(node, 0, 3)
        proxy = Proxy(("127.0.0.1", node.ask.port))
        with proxy, replica(place / "copy", proxy.url) as running:
            running.reaches(3)
            node.stop()
            until(lambda: running.state.phase == "waiting" and bool(running.state.error))
            with served(place / "source") as again:
                publish(again, 3, 6)
                proxy.server = ("127.0.0.1", again.ask.port)
                running.reaches(6)


def test_a_stream_that_is_not_there(node: Served, place: Path) -> None:
    with replica(place / "copy", url(node), "other") as running:
        assert isinstance(running.ended(), NotFound)
    with replica(place / "copy", url(node), "other", patient=True) as running:
        until(lambda: running.state.phase == "waiting")
        node.ask.done("PUT", "/streams/other", FIELDS)
        node.ask.done("POST", "/streams/other", [{"n": 1}])
        running.reaches(1)


def test_a_source_that_was_dropped_and_made_again_is_refused(node: Served, place: Path) -> None:
    publish(node, 0, 3)
    with replica(place / "copy", url(node), once=True) as running:
        assert running.ended() is None
    node.ask.done("DELETE", "/streams/s")
    node.ask.done("PUT", "/streams/s", FIELDS)
    publish(node, 0, 9)
    with replica(place / "copy", url(node)) as running:
        error = running.ended()
    assert isinstance(error, Diverged)
    assert "headrace stream drop" in str(error)
    assert numbers(place / "copy") == [0, 1, 2]


def test_a_source_that_was_cut_or_trimmed_is_refused(place: Path) -> None:
    with served(place / "source") as node:
        node.ask.done("PUT", "/streams/s", FIELDS)
        publish(node, 0, 10)
        for copy in ("cut", "trimmed"):
            with replica(place / copy, url(node), once=True) as running:
                assert running.ended() is None
        publish(node, 10, 20)
        with replica(place / "cut", url(node), once=True) as running:
            assert running.ended() is None
    with Log.open(log_of(place / "source")) as log:
        log.truncate(15)
        log.trim(12)
    with served(place / "source") as node:
        publish(node, 15, 40)
        for copy, kind in (("cut", Diverged), ("trimmed", Trimmed)):
            with replica(place / copy, url(node)) as running:
                assert isinstance(running.ended(), kind)
        with replica(place / "new", url(node), once=True) as running:
            assert running.ended() is None
    assert numbers(place / "new") == [*range(12, 40)]


def test_a_take_over_of_the_source_is_no_matter(node: Served, place: Path) -> None:
    publish(node, 0, 3)
    with replica(place / "copy", url(node)) as running:
        running.reaches(3)
        with node.store.stream("s").publisher(take_over=True) as publisher:
            publisher.publish_batch([{"n": 3, "text": "by another"}])
            publisher.flush()
        running.reaches(4)
    with Log.open(log_of(place / "copy"), read_only=True) as copy:
        assert [batch.epoch for batch in copy.read()] == [1, 3]
    assert past(log_of(place / "copy")) == past(log_of(place / "source"))


def test_damage_at_the_source_is_told_and_not_copied(node: Served, place: Path) -> None:
    publish(node, 0, 3)
    publish(node, 3, 6, "damaged")
    publish(node, 6, 9)
    node.stop()
    with Log.open(log_of(place / "source")) as log:
        log.roll()
    (segment,) = log_of(place / "source").glob("*.seg")
    flip(segment, segment.read_bytes().index(b"damaged"))
    with served(place / "source") as again, replica(place / "copy", url(again)) as running:
        until(lambda: running.state.phase == "waiting")
        assert "entries 3 to 5 are lost" in running.state.error
        assert running.state.next_index == 3
    repair(log_of(place / "source"))
    with served(place / "source") as again, replica(place / "copy", url(again), once=True) as running:
        assert running.ended() is None
    assert numbers(place / "copy") == [0, 1, 2, 6, 7, 8]


def test_a_copy_grows_with_its_source(node: Served, place: Path) -> None:
    grown: list[str] = []

    async def on_grown(name: str) -> None:
        grown.append(name)

    publish(node, 0, 3)
    with replica(place / "copy", url(node), on_grown=on_grown) as running:
        running.reaches(3)
        node.ask.done("PUT", "/streams/s", {"fields": {**FIELDS["fields"], "more": "int64"}})
        node.ask.done("POST", "/streams/s", [{"n": 3, "text": "3", "more": 33}])
        running.reaches(4)
    assert grown == ["s"]
    with hr.open(place / "copy") as store:
        assert [entry.value.get("more") for entry in store.stream("s").listen()] == [None, None, None, 33]


def test_the_token_goes_along_and_who_may_not_is_told_so(place: Path) -> None:
    asked: list[str | None] = []

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("Authorization"))
            body = b'{"error": "no_permission", "message": "the token may not read s"}'
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            there = f"http://127.0.0.1:{server.server_port}"
            with replica(place / "copy", there, token="secret") as running:
                assert isinstance(running.ended(), NoPermission)
        finally:
            server.shutdown()
    assert asked == ["Bearer secret"]
    assert "secret" not in str(running.error)
