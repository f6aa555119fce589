"""How a node ends connections: what it said last arrives, whatever the peer is sending."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.kernel.clock import SystemClock
from headrace.server import parting
from headrace.server.http_limits import HttpLimits
from headrace.wire.fj import BUSY, OVERWRITE, PERSIST, Function, Limits, Reply, Request, encode_request
from headrace.wire.fj_replies import ReplyParser

from .http_node import Served, served

pytestmark = pytest.mark.usefixtures("quiet_log")
LARGE = 8 << 20


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, what is sent at once is thrown away as long as it comes."""
    monkeypatch.setattr(parting, "QUIET_S", 2.0)
    monkeypatch.setattr(parting, "LONGEST_S", 30.0)


@contextmanager
def dialled(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
        yield wire


def posted(wire: socket.socket, path: str, size: int) -> None:
    wire.sendall(b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), size))
    wire.sendall(bytes(size))


def answered(wire: socket.socket) -> tuple[int, str]:
    """The status and the error of an answer that ends with its connection, without a reset."""
    got = b""
    while part := wire.recv(65536):
        got += part
    head, _, body = got.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


def now_us() -> int:
    return SystemClock().now_us()


def fj_replies(wire: socket.socket) -> list[Reply]:
    """All until the end, which is no reset."""
    parser, found = ReplyParser(Limits()), list[Reply]()
    while part := wire.recv(65536):
        found += parser.feed(part)
    return found


def test_one_connection_too_many_is_told_so_while_it_sends(place: Path) -> None:
    with (
        served(place / "store", HttpLimits(connections=1)) as node,
        dialled(node.ask.port) as first,
        dialled(node.ask.port) as extra,
    ):
        first.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        posted(extra, "/streams/s", LARGE)
        assert answered(extra) == (503, "busy")


def test_only_so_many_who_were_turned_away_are_listened_to(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parting, "_TURNED_AWAY_MAX", 1)
    with served(place / "store", HttpLimits(connections=0)) as node:
        with dialled(node.ask.port) as first, dialled(node.ask.port) as second:
            assert answered(second) == (503, "busy")
            second.close()
            assert answered(first) == (503, "busy")
        with dialled(node.ask.port) as third:  # there is room again
            posted(third, "/streams/s", LARGE)
            assert answered(third) == (503, "busy")


def test_a_body_for_which_there_is_no_room_is_refused_while_it_is_sent(place: Path) -> None:
    with served(place / "store", HttpLimits(bodies_bytes=1 << 20)) as node:
        node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
        with dialled(node.ask.port) as wire:
            posted(wire, "/streams/s", LARGE)
            assert answered(wire) == (503, "busy")
        assert node.ask.rows("/streams/s") == []


def test_a_body_that_is_thrown_away_keeps_nobody_else_out(place: Path) -> None:
    with served(place / "store", HttpLimits(bodies_bytes=1 << 20)) as node, dialled(node.ask.port) as wire:
        posted(wire, "/nowhere", LARGE)
        wire.sendall(b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
        heard = b""
        while heard.count(b"HTTP/1.1 ") < 2:  # its connection goes on: nothing else was held of it
            heard += wire.recv(65536)
        assert heard.startswith(b"HTTP/1.1 404 ")
        assert b"HTTP/1.1 405 " in heard


def with_fj(place: Path) -> Iterator[Served]:
    with served(place / "store", fj="j") as node:
        yield node


node = pytest.fixture(with_fj)


def test_requests_behind_a_quit_do_not_take_its_answers_away(node: Served) -> None:
    asked = [
        Request(Function.SET, n, OVERWRITE | PERSIST, n, key=b"k", type=1, value=b"v") for n in range(1, 50)
    ]
    with dialled(node.fj_port) as wire:
        wire.sendall(b"".join(map(encode_request, [*asked, Request(Function.QUIT, 99), *asked * 1000])))
        assert [each.identifier for each in fj_replies(wire)] == list(range(1, 50))


def test_a_lock_is_free_before_its_owner_hears_that_it_is_over(node: Served) -> None:
    lock = Request(Function.LOCK, 1, 0, now_us(), key=b"k")
    with dialled(node.fj_port) as wire:
        made = Request(Function.SET, 1, PERSIST, now_us(), key=b"k", type=1, value=b"v")
        wire.sendall(encode_request(made) + encode_request(Request(Function.QUIT, 2)))
        assert len(fj_replies(wire)) == 1
    with dialled(node.fj_port) as first, dialled(node.fj_port) as second:
        for wire in (first, second):  # none of them closes its half
            wire.sendall(encode_request(lock) + encode_request(Request(Function.QUIT, 2)))
            (reply,) = fj_replies(wire)
            assert not reply.error, reply
            assert not reply.flags & BUSY, reply
