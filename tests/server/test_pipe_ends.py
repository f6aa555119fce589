"""How pipes end: with the node, its tokens or their peer. What was taken is answered, and nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernel.errors import Closed
from headrace.server.http_limits import HttpLimits
from headrace.server.node import Node
from headrace.server.stream_desk import StreamDesk
from headrace.server.tls import server_context
from headrace.server.tokens import TokenFile
from headrace.stream.publisher import Publisher as StreamPublisher
from waiting import until

from .certificates import self_signed
from .http_node import Served, served
from .test_pipe import Publisher, batch, node, numbers

__all__ = ["node"]


def test_a_publisher_that_goes_before_its_answer_is_let_go_of_once(node: Served) -> None:
    for sequence in range(20):
        pipe = Publisher(node)
        pipe.send(batch(sequence, sequence))
        pipe.socket.close()
    until(lambda: node.node.under_way == 0 and node.server.door.connections == 0)
    there = numbers(node)  # what was whole when it came is published, answered or not
    assert there == sorted(set(there))
    until(lambda: node.server.door.held_bytes == 0)


def test_a_token_that_is_taken_away_ends_the_pipe(place: Path) -> None:
    with hr.open(place / "store") as store:
        store.stream("s", pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    tokens = TokenFile(place / "store")
    secret = tokens.create("writer", ["publish:*"]).secret
    with served(place / "store") as node:
        pipe = Publisher(node, {"Authorization": f"Bearer {secret}"})
        assert pipe.ask(batch(0, 1))["next"] == 1
        tokens.revoke("writer")
        assert pipe.has_ended()


@pytest.mark.parametrize("over_tls", [False, True])
def test_a_node_that_stops_answers_what_it_has_taken(place: Path, over_tls: bool) -> None:
    with hr.open(place / "store") as store:
        store.stream("s", pa.schema([pa.field("n", pa.int64())]), order_by="n")
    ours = theirs = None
    if over_tls:
        cert, key = self_signed(place)
        ours, theirs = server_context(cert, key), ssl.create_default_context(cafile=cert)
    with served(place / "store", tls=ours) as node:
        pipe = Publisher(node, tls=theirs)
        for sequence in range(50):
            pipe.send(batch(sequence, sequence))
        assert pipe.answer()["next"] == 1
    answered = 1
    with pytest.raises(AssertionError, match="it ended"):
        while pipe.answer()["next"]:
            answered += 1
    with hr.open(place / "store") as store:
        there = [entry.value["n"] for entry in store.stream("s").listen()]
    assert there == list(range(len(there)))
    assert answered == len(there)


def test_a_node_that_stops_is_not_kept_by_a_peer_that_goes_on_sending(place: Path) -> None:
    with served(place / "store") as node:
        node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}, "order_by": "n"})
        pipe = Publisher(node)

        def send() -> None:
            with contextlib.suppress(OSError):
                for sequence in range(1 << 30):
                    pipe.send(batch(sequence, sequence))

        sending = threading.Thread(target=send)
        sending.start()
        assert pipe.answer()["next"] == 1
    assert pipe.has_ended()
    pipe.socket.close()
    sending.join()
    with hr.open(place / "store") as store:
        there = [entry.value["n"] for entry in store.stream("s").listen()]
    assert there == list(range(len(there)))


def test_what_has_no_place_yet_is_not_kept_for_a_publisher_that_has_gone(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, publish_batch = threading.Event(), StreamPublisher.publish_batch

    def slow(self: StreamPublisher, *given: Any, **named: Any) -> Any:
        gone.wait(30)
        return publish_batch(self, *given, **named)

    monkeypatch.setattr("headrace.server.stream_desk.QUEUE_BYTES", 600)
    monkeypatch.setattr(StreamPublisher, "publish_batch", slow)
    pipe = Publisher(node)
    for sequence in range(100):
        pipe.send(batch(sequence, sequence))
    pipe.socket.close()
    until(lambda: node.server.door.connections == 0)
    gone.set()
    until(lambda: node.node.under_way == 0)
    there = numbers(node)
    assert there == list(range(len(there)))
    assert len(there) < 10
    assert node.ask.done("POST", "/streams/s", [{"n": 100}])["next"] == len(there) + 1


def test_a_pipe_whose_peer_has_gone_does_not_keep_a_node_that_cannot_make_way(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, gone = threading.Event(), threading.Event()

    async def failing(self: Node, name: str, id: str | None = None) -> StreamDesk:  # noqa: A002
        opening.set()
        await asyncio.to_thread(gone.wait, 30)
        raise Closed("it is being closed")

    with served(place / "store", HttpLimits(drain_s=1000)) as node:
        node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}, "order_by": "n"})
        pipe = Publisher(node)
        monkeypatch.setattr(Node, "open_stream", lambda self, name, stream_id: None)
        monkeypatch.setattr(Node, "stream", failing)
        pipe.send(batch(0, 0))
        assert opening.wait(30)
        pipe.socket.close()
        until(lambda: node.server.door.connections == 0)
        gone.set()
        until(lambda: node.node.under_way == 0)
