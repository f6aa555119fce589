"""A pipe as the node sees it: batches in order, each once; what is wrong is told; nobody holds it up."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.server.http_limits import HttpLimits
from headrace.wire.pipe import PipeRequest, Verb, key_body
from waiting import until

from .http_node import Served, encoded, served


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    limits = HttpLimits(drain_s=5.0, body_s=0.2, progress_bytes=100, body_bytes=1 << 20)
    with served(place / "store", limits) as one:
        one.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}, "order_by": "n"})
        yield one


class Publisher:
    """The other end, by hand."""

    def __init__(
        self, node: Served, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", node.ask.port), timeout=30)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        said = {"Headrace-Producer": "me", "Upgrade": "headrace-pipe", **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        self.socket.sendall(
            f"GET /streams/s/pipe HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n{lines}\r\n".encode()
        )
        self.head = b""
        while b"\r\n\r\n" not in self.head:
            self.head += self.socket.recv(1)

    def send(self, request: PipeRequest) -> None:
        self.socket.sendall(request.head + bytes(request.body))

    def answer(self) -> dict[str, Any]:
        size = struct.unpack("<I", self._exactly(4))[0]
        found: dict[str, Any] = json.loads(self._exactly(size))
        return found

    def ask(self, request: PipeRequest) -> dict[str, Any]:
        self.send(request)
        return self.answer()

    def has_ended(self) -> bool:
        """Whether the node has ended it, after whatever it still said."""
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionResetError:
            pass
        return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "it ended"
            data += more
        return data


def batch(sequence: int, *numbers: int, base: int = -1) -> PipeRequest:
    body, _ = encoded(pa.table({"n": pa.array(numbers, pa.int64())}))
    return PipeRequest(Verb.PUBLISH, sequence, base, body)


def numbers(node: Served) -> list[int]:
    return [line["n"] for line in node.ask("GET", "/streams/s").lines if "n" in line]


def test_batches_are_published_once_in_their_order(node: Served) -> None:
    pipe = Publisher(node)
    assert pipe.head.startswith(b"HTTP/1.1 101 ")
    for request in (batch(0, 1, 2), batch(1, 3), batch(1, 3), batch(2, 4)):
        pipe.send(request)  # none waits for an answer
    told = [pipe.answer() for _ in range(4)]
    assert [(each["first"], each["next"], each["repeated"]) for each in told] == [
        (0, 2, False),
        (2, 3, False),
        (2, 3, True),
        (3, 4, False),
    ]
    assert pipe.ask(PipeRequest(Verb.WHERE))["next"] == 4
    assert pipe.ask(PipeRequest(Verb.HEAD, body=key_body((1 << 63) + 9))) == {"head": (1 << 63) + 9}
    assert numbers(node) == [1, 2, 3, 4]
    assert node.ask("GET", "/streams/s").lines[-1]["_head"] == 9


def test_what_is_wrong_with_a_batch_is_told_and_the_pipe_goes_on(node: Served) -> None:
    pipe = Publisher(node)
    assert pipe.ask(batch(0, 5))["next"] == 1
    wrong = [
        (batch(1, 3), "key_order"),
        (batch(1, 6, base=0), "fenced"),
        (PipeRequest(Verb.PUBLISH, 1, -1, b"not Arrow"), "schema_mismatch"),
        (PipeRequest(Verb.HEAD, body=b"short"), "protocol"),
        (PipeRequest(Verb.HEAD, body=key_body(0)), "key_order"),
    ]
    for request, code in wrong:
        found = pipe.ask(request)
        assert (found["error"], found["status"] >= 400, bool(found["message"])) == (code, True, True), found
    assert pipe.ask(batch(1, 6))["next"] == 2
    assert numbers(node) == [5, 6]
    assert node.node.refused["key_order"] == 2


def test_what_is_no_request_ends_the_pipe_and_publishes_nothing(node: Served) -> None:
    for garbage in (b"GET / HTTP/1.1\r\n\r\n" * 3, b"\xff" * 64, batch(0, 1).head.replace(b"\x01", b"\x09")):
        pipe = Publisher(node)
        pipe.socket.sendall(garbage)
        assert pipe.answer()["error"] == "protocol"
        assert pipe.has_ended()
    assert numbers(node) == []


def test_a_pipe_is_refused_to_whom_it_is_not_due(node: Served) -> None:
    assert Publisher(node, {"Upgrade": "websocket"}).head.startswith(b"HTTP/1.1 400 ")
    assert Publisher(node, {"Headrace-Producer": ""}).head.startswith(b"HTTP/1.1 400 ")
    assert Publisher(node, {"Headrace-Stream": "another"}).head.startswith(b"HTTP/1.1 404 ")


def test_the_lease_counts_for_every_batch(node: Served) -> None:
    shared, alone = Publisher(node), Publisher(node, {"Headrace-Publisher": "me"})
    assert shared.ask(batch(0, 1))["next"] == 1
    assert alone.ask(PipeRequest(Verb.WHERE))["next"] == 1  # and holds the stream from now on
    assert shared.ask(batch(1, 2))["error"] == "publisher_taken"
    assert alone.ask(batch(1, 2, base=1))["next"] == 2
    node.ask.done("POST", "/streams/s/publisher", {"id": "other", "take_over": True})
    assert alone.ask(batch(2, 3, base=2))["error"] == "fenced"
    assert numbers(node) == [1, 2]


def test_a_request_that_is_half_sent_is_cut_off_and_a_pipe_without_one_is_not(node: Served) -> None:
    idle, half = Publisher(node), Publisher(node)
    request = batch(0, 1)
    half.socket.sendall(request.head + bytes(request.body[:50]))
    assert half.has_ended()
    assert idle.ask(batch(0, 7))["next"] == 1
    assert numbers(node) == [7]
    until(lambda: node.server.door.held_bytes == 0)


def test_what_waits_counts_as_held_until_it_is_answered(node: Served) -> None:
    pipe = Publisher(node)
    pipe.socket.sendall(PipeRequest(Verb.PUBLISH, 0, -1, bytes(1 << 20)).head)
    pipe.socket.sendall(bytes(1 << 19))
    until(lambda: node.server.door.held_bytes >= 1 << 19)
    pipe.socket.sendall(bytes(1 << 19))
    assert "error" in pipe.answer()
    until(lambda: node.server.door.held_bytes == 0)


def test_what_comes_in_one_segment_is_answered_in_order_also_what_is_wrong(node: Served) -> None:
    pipe = Publisher(node)
    requests = [batch(0, 1), batch(1, 0), batch(1, 2, base=1), PipeRequest(Verb.WHERE), batch(2, 9, base=7)]
    requests += [batch(n, n + 1, base=n) for n in range(2, 200)]
    data = b"".join(each.head + bytes(each.body) for each in requests)
    pipe.socket.sendall(data + b"\xff" * 24)
    told = [pipe.answer() for _ in requests]
    assert [each.get("error") for each in told[:5]] == [None, "key_order", None, None, "fenced"]
    assert (told[2]["first"], told[3]["next"]) == (1, 2)
    assert [each["first"] for each in told[5:]] == list(range(2, 200))
    assert pipe.answer()["error"] == "protocol"  # behind all the others
    assert pipe.has_ended()
    assert numbers(node) == list(range(1, 201))
    until(lambda: node.node.under_way == 0 and node.server.door.held_bytes == 0)


def test_requests_that_come_in_any_pieces_are_answered_in_order(node: Served) -> None:
    pipe = Publisher(node)
    data = b"".join(each.head + bytes(each.body) for each in (batch(n, n, base=n) for n in range(30)))
    for at in range(0, len(data), 97):
        pipe.socket.sendall(data[at : at + 97])
    assert [pipe.answer()["first"] for _ in range(30)] == list(range(30))


def test_a_pipe_that_is_never_idle_holds_what_is_not_answered_and_no_more(node: Served) -> None:
    pipe, size = Publisher(node), len(batch(0, *range(500)).body)
    for sequence in range(200):
        pipe.send(batch(sequence, *range(500 * sequence, 500 * sequence + 500)))
        if sequence >= 4:
            assert pipe.answer()["first"] == 500 * (sequence - 4)
        assert node.server.door.held_bytes < 10 * size
    assert [pipe.answer()["next"] for _ in range(4)][-1] == 100_000
    until(lambda: node.server.door.held_bytes == 0)


def test_a_pipe_goes_on_at_the_next_desk_of_its_stream(node: Served) -> None:
    pipe = Publisher(node)
    assert pipe.ask(batch(0, 1))["next"] == 1
    for sequence in range(1, 4):
        asyncio.run_coroutine_threadsafe(node.node.reopen_stream("s"), node.desk._loop).result(30)
        assert node.node.open_stream("s") is None
        for more in (2 * sequence, 2 * sequence + 1):
            pipe.send(batch(more, more))
        assert [pipe.answer()["first"] for _ in range(2)] == [2 * sequence - 1, 2 * sequence]
    assert numbers(node) == [1, *range(2, 8)]
    until(lambda: node.node.under_way == 0 and node.server.door.held_bytes == 0)


def test_each_request_for_a_stream_that_was_dropped_is_told_so(node: Served) -> None:
    pipe = Publisher(node)
    assert pipe.ask(batch(0, 1))["next"] == 1
    node.ask.done("DELETE", "/streams/s")
    requests = [batch(n, n) for n in range(1, 3000)]
    pipe.socket.sendall(b"".join(each.head + bytes(each.body) for each in requests))
    assert {pipe.answer()["error"] for _ in requests} == {"not_found"}
    until(lambda: node.node.under_way == 0 and node.server.door.held_bytes == 0)


def test_requests_wait_for_room_at_the_desk_in_their_order(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.server.stream_desk.QUEUE_BYTES", 600)
    pipes = [Publisher(node, {"Headrace-Producer": f"p{n}"}) for n in range(3)]
    for sequence in range(40):
        for pipe in pipes:
            pipe.send(batch(sequence, 0))
    for pipe in pipes:
        firsts = [pipe.answer()["first"] for _ in range(40)]
        assert firsts == sorted(firsts)
    assert len(numbers(node)) == 120
    until(lambda: node.node.under_way == 0 and node.server.door.held_bytes == 0)


def test_thousands_of_requests_that_are_refused_are_answered(node: Served) -> None:
    pipe, many = Publisher(node), 20_000
    pipe.socket.sendall(PipeRequest(Verb.HEAD, body=b"").head * many)
    assert {pipe.answer()["error"] for _ in range(many)} == {"protocol"}
    until(lambda: node.node.under_way == 0 and node.server.door.held_bytes == 0)
