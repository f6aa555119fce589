"""Peers that send garbage, too much, too little, or do not read: the server stays, and so does its memory."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from client.real_server import in_thread
from headrace.client.fj import connect
from headrace.journal.job import Job
from headrace.kernel.errors import Refused
from headrace.wire.fj import (
    DATA,
    OVERWRITE,
    PERSIST,
    RANGE,
    Function,
    Limits,
    Reply,
    Request,
    encode_request,
)
from headrace.wire.fj_replies import ReplyParser
from wire.messages import requests

pytestmark = pytest.mark.usefixtures("quiet_log")
CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))


@pytest.fixture
def port(place: Path) -> Iterator[int]:
    with in_thread(place / "store") as port:
        yield port


class Wire:
    """A connection without a client: bytes out, replies in."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._parser = ReplyParser(Limits())
        self._replies: list[Reply] = []

    def send(self, *requests: Request) -> None:
        self.socket.sendall(b"".join(map(encode_request, requests)))

    def reply(self) -> Reply | None:
        """The next one; None when the server has closed the connection."""
        while not self._replies:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._replies += self._parser.feed(data)
        return self._replies.pop(0)

    def close(self) -> None:
        self.socket.close()


def is_alive(port: int) -> bool:
    with connect(port=port) as jobs:
        jobs.put("https://example.com/alive")
        found = jobs.next("example.com")
        if isinstance(found, Job):
            found.done()
        return isinstance(found, Job)


def test_a_frame_may_come_byte_by_byte(port: int) -> None:
    wire = Wire(port)
    for byte in encode_request(
        Request(Function.SET, 7, PERSIST | OVERWRITE, 1, None, None, b"k", None, 2, b"v")
    ):
        wire.socket.sendall(bytes((byte,)))
    reply = wire.reply()
    assert reply is not None
    assert (reply.identifier, reply.error) == (7, b"")
    wire.send(Request(Function.GET, 8, DATA, 0, None, None, b"k"))
    reply = wire.reply()
    assert reply is not None
    assert reply.pairs is not None
    assert reply.pairs[0].value == b"v"


def test_an_unknown_function_is_answered_and_the_connection_goes_on(port: int) -> None:
    wire = Wire(port)
    wire.send(Request(999, 1, 0, 0, None, None, b"k"), Request(Function.NOP, 2))
    first, second = wire.reply(), wire.reply()
    assert first is not None
    assert first.error.startswith(b"bad_request: there is no function 999")
    assert second is not None
    assert (second.identifier, second.error) == (2, b"")


def test_garbage_is_told_and_the_connection_closed(port: int) -> None:
    wire = Wire(port)
    wire.send(Request(Function.NOP, 1))
    wire.socket.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(30))
    replies = list(iter(wire.reply, None))
    assert [reply.identifier for reply in replies] == [1, 0]
    assert replies[-1].error.startswith(b"protocol: ")
    assert is_alive(port)


def test_quit_answers_what_came_before_and_closes(port: int) -> None:
    wire = Wire(port)
    sets = [
        Request(Function.SET, n, PERSIST | OVERWRITE, n, None, None, b"k%d" % n, None, 1, b"v")
        for n in range(1, 50)
    ]
    wire.send(*sets, Request(Function.QUIT, 60), Request(Function.NOP, 61))
    assert [reply.identifier for reply in iter(wire.reply, None)] == list(range(1, 50))


def test_a_value_beyond_the_limit_is_refused_before_it_is_read(port: int) -> None:
    wire = Wire(port)
    frame = encode_request(Request(Function.SET, 1, PERSIST, 1, None, None, b"k", None, 1, bytes(1 << 20)))
    cut = frame.index(b"k") + 1
    wire.socket.sendall(frame[:cut] + (1 << 31).to_bytes(4, "big") + b"\1")
    replies = list(iter(wire.reply, None))
    assert replies[-1].error.startswith(b"protocol: ")


@pytest.mark.parametrize(
    "request_",
    [
        Request(Function.SET, 1, 0, 1, None, None, b"k"),
        Request(Function.SET, 1, 0, 1, None, None, b"", None, 1, b"v"),
        Request(Function.SET, 1, 0, 1, None, None, b"\0own", None, 1, b"v"),
        Request(Function.SET, 1, 0, 1 << 63, None, None, b"k", None, 1, b"v"),
        Request(Function.SET, 1, 0, 1, (1 << 64) - 1, None, b"k", None, 1, b"v"),
        Request(Function.SET, 1, RANGE, 1, None, 0, b"no sort key", b"r"),
        Request(Function.SET, 1, RANGE, 1, None, 0, b"d:256:0", b"r"),
        Request(Function.SET, 1, RANGE, 1, None, 0, b"d:-1:0", b"r"),
        Request(Function.SET, 1, RANGE, 1, None, 0, b"d:1:99999999999999999999", b"r"),
        Request(Function.SET, 1, RANGE, 1, None, 0, b"d:1:0", b""),
        Request(Function.ADD, 1, 0, 1, None, None, b"missing", None, 3, bytes(8)),
        Request(Function.ADD, 1, 0, 1, None, None, b"missing"),
        Request(Function.TRUNCATE, 1, 0, 1, None, None, b"missing", None, 2, b"three"),
        Request(Function.RENAME, 1, 0, 1, None, None, b"missing"),
        Request(Function.NEXT, 1, 0, 1, 1, None, b""),
        Request(Function.GET, 1, 2 << 7, 1, None, None, b"(unclosed"),
        Request(Function.GET, 1, 3 << 7, 1, None, None, b"no cursor"),
    ],
)
def test_a_wrong_request_is_refused_and_changes_nothing(port: int, request_: Request) -> None:
    wire = Wire(port)
    wire.send(request_, Request(Function.GET, 2, RANGE | DATA, 0, None, 0, b"", b"\xff" * 9))
    refused, listing = wire.reply(), wire.reply()
    assert refused is not None
    assert refused.error
    assert listing is not None
    assert listing.pairs == []
    assert is_alive(port)


def test_ten_thousand_mutated_frames_do_not_bring_the_server_down(port: int) -> None:
    lot = random.Random(7)
    frames = [
        encode_request(
            Request(
                function,
                number,
                lot.getrandbits(16) & 0x1FF0 & ~(3 << 7),
                number,
                None,
                None,
                b"key%d" % number,
                None,
                3,
                bytes(8),
            )
        )
        for number, function in enumerate(list(Function) * 4, 1)
    ]
    for _ in range(2000 if CAMPAIGN else 60):
        wire = Wire(port)
        data = bytearray(b"".join(lot.choices(frames, k=20)))
        for _ in range(lot.randrange(5)):
            data[lot.randrange(len(data))] = lot.getrandbits(8)
        wire.socket.sendall(data[: lot.randrange(1, len(data))])
        if lot.random() < 0.5:
            wire.socket.shutdown(socket.SHUT_WR)
            while wire.reply() is not None:
                pass
        wire.close()
    assert is_alive(port)


@settings(
    deadline=None,
    max_examples=100,
    derandomize=not CAMPAIGN,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(requests(), max_size=8))
def test_any_request_is_answered_or_ends_the_connection(port: int, several: list[Request]) -> None:
    wire = Wire(port)
    functions = [request.function for request in several]
    with contextlib.suppress(OSError):  # a server that was told to QUIT may be gone before all is sent
        wire.send(*several)
        wire.socket.shutdown(socket.SHUT_WR)
    asked = [request.identifier for request in several]
    quits = Function.QUIT in functions
    if quits:
        asked = asked[: functions.index(Function.QUIT)]
    answered = [reply.identifier for reply in iter(wire.reply, None) if reply.identifier]
    asked = [number for number in asked if number]  # 0 is for pushes
    assert answered == (asked[: len(answered)] if quits else asked)
    wire.close()


def test_a_peer_that_does_not_read_is_not_read_from_for_ever(port: int) -> None:
    with connect(port=port) as jobs:
        jobs.set("large", bytes(1 << 20))
    wire = Wire(port)
    wire.socket.settimeout(0.5)
    gets = encode_request(Request(Function.GET, 1, DATA, 0, None, None, b"large")) * 100
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 1 << 30:
            sent += wire.socket.send(gets)
    assert is_alive(port)
    wire.close()


def test_a_lock_ends_with_the_connection_that_holds_it(port: int) -> None:
    with connect(port=port) as one, connect(port=port) as other:
        one.set("k", 1)
        one.lock("k")
        with pytest.raises(Exception, match="locked"):
            other.set("k", 2)
        one.close()
        for _ in range(1000):  # the server hears of the end of a connection soon, not at once
            try:
                other.set("k", 3)
                break
            except Refused:
                raise
            except Exception:
                continue
        found = other.get("k")
        assert found
        assert found.value == 3
