"""Limits of a node: what a peer sends, keeps or waits for has a bound, and nobody else is harmed."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
import xxhash

from headrace.journal.value import Type
from headrace.server.http_door import Door
from headrace.server.http_limits import HttpLimits
from headrace.wire.fj import Function, Request, encode_request
from headrace.wire.http_words import CHECKSUM
from waiting import until

from .http_node import Served, ipc, served
from .test_http_followers import silent

pytestmark = pytest.mark.usefixtures("quiet_log")
FIELDS = {"fields": {"n": "int64", "text": "string"}}


@contextmanager
def limited(place: Path, **limits: float) -> Iterator[Served]:
    wanted = HttpLimits(**{"drain_s": 0.2, **limits})  # type: ignore[arg-type]
    with served(place / "store", wanted) as node:
        node.ask.done("PUT", "/streams/s", FIELDS)
        yield node


def dial(node: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.ask.port), timeout=30)


def rest(wire: socket.socket) -> bytes:
    """What comes until the connection ends, however it ends."""
    got = b""
    try:
        while part := wire.recv(65536):
            got += part
    except ConnectionError:
        pass
    return got


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"G",
        b"GET /livez HTTP/1.1\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HT",
    ],
)
def test_a_peer_that_does_not_finish_its_headers_is_cut_off(place: Path, sent: bytes) -> None:
    with limited(place, head_s=1, keep_alive_s=1.5) as node, dial(node) as wire:
        wire.sendall(sent)
        answer = rest(wire)  # it ends without another word from us
        assert answer == b"" or answer.startswith(b"HTTP/1.1 200")
        until(lambda: node.server.door.connections == 0)
        assert node.ask.done("GET", "/livez") == {"alive": True}


def test_headers_that_trickle_in_are_cut_off_as_well(place: Path) -> None:
    with limited(place, head_s=1) as node, dial(node) as wire:
        wire.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(ConnectionError):
            while True:  # a byte now and then is no reason to wait
                wire.sendall(b"x")
                threading.Event().wait(0.01)
        assert node.server.door.cut == 1


def test_a_body_that_does_not_come_is_answered_and_nothing_is_published(place: Path) -> None:
    with limited(place, body_s=0.5) as node, dial(node) as wire:
        wire.sendall(b'POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"n": 1}\n')
        head, _, body = rest(wire).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(body)["error"] == "too_slow"
        assert node.ask.rows("/streams/s") == []


def test_a_body_that_comes_slowly_but_surely_is_taken(place: Path) -> None:
    lines = [b'{"n": %d, "text": "%s"}\n' % (n, b"x" * 2000) for n in range(20)]
    with limited(place, body_s=0.3, progress_bytes=1000) as node, dial(node) as wire:
        size = sum(map(len, lines))
        wire.sendall(b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
        for line in lines:
            wire.sendall(line)
            threading.Event().wait(0.04)
        response = http.client.HTTPResponse(wire)
        response.begin()
        assert response.status == 200, response.read()
        assert len(node.ask.rows("/streams/s")) == 20


def test_a_reader_that_takes_nothing_is_cut_off_and_a_slow_one_is_not(place: Path) -> None:
    with limited(place, body_s=0.3, progress_bytes=4096) as node:
        for _ in range(4):
            node.ask.done("POST", "/streams/s", [{"n": n, "text": "x" * 100_000} for n in range(100)])
        with silent(node, "/streams/s"), dial(node) as slow:
            slow.sendall(b"GET /streams/s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            got = 0
            while part := slow.recv(1 << 18):
                got += len(part)
                threading.Event().wait(0.005)
            assert got > 40_000_000
            until(lambda: node.server.door.cut == 1)
        until(lambda: node.desk.followers == 0)


def test_one_connection_too_many_is_told_so_and_the_others_go_on(place: Path) -> None:
    with limited(place, connections=4) as node, ExitStack() as stack:
        until(lambda: node.server.door.connections == 0)
        wires = [stack.enter_context(dial(node)) for _ in range(4)]
        for wire in wires:
            wire.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert wire.recv(9) == b"HTTP/1.1 "
        with dial(node) as extra:
            head, _, body = rest(extra).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert json.loads(body)["error"] == "busy"
        assert node.server.door.refused == 1
        wires[0].close()
        until(lambda: node.server.door.connections == 3)
        assert node.ask.done("GET", "/livez") == {"alive": True}


def test_connections_are_counted_for_metrics_without_touching_them() -> None:
    """A thread that lets go of connections beside the loop would bring the numbers out of step."""

    class Closing(asyncio.Transport):
        def is_closing(self) -> bool:
            return True

    door: Any = Door(cast(Any, None), HttpLimits())
    door.enter(None, Closing(), "10.0.0.1")
    assert door.connections == 0
    assert door._by_address == {"10.0.0.1": 1}  # until the loop hears that it is lost


def test_one_address_cannot_take_all_connections(place: Path) -> None:
    with limited(place, connections=100, connections_per_address=3) as node, ExitStack() as stack:
        until(lambda: node.server.door.connections == 0)
        for _ in range(3):
            stack.enter_context(dial(node))
        until(lambda: node.server.door.connections == 3)
        with dial(node) as extra:
            assert rest(extra).startswith(b"HTTP/1.1 503 ")
        with socket.socket() as other:  # another address of the same machine
            other.bind(("127.0.0.2", 0))
            other.connect(("127.0.0.1", node.ask.port))
            other.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert rest(other).startswith(b"HTTP/1.1 200 ")


def test_requests_under_way_are_counted_and_one_too_many_is_busy(place: Path) -> None:
    with limited(place, requests=2) as node:
        followers = [node.ask.following("/streams/s?follow=true") for _ in range(2)]
        answer = node.ask("GET", "/streams")
        assert (answer.status, answer.error) == (503, "busy")
        assert answer.headers["Retry-After"]
        for follower in followers:
            follower.close()
        until(lambda: node.ask("GET", "/streams").status == 200)


def test_all_bodies_together_have_a_bound(place: Path) -> None:
    with limited(place, bodies_bytes=200_000) as node:
        big = b'{"text": "' + b"x" * 300_000 + b'"}'
        answer = node.ask("POST", "/streams/s", big)
        assert (answer.status, answer.error) == (503, "busy")
        assert node.ask.done("POST", "/streams/s", big[:100_000] + b'"}')["next"] == 1
        until(lambda: node.server.door.held_bytes == 0)


def test_streams_and_journals_have_a_number(place: Path) -> None:
    with limited(place, streams=3) as node:
        for kind, body in (("streams", FIELDS), ("journals", {})):
            made = [node.ask("PUT", f"/{kind}/n{n}", body).status for n in range(5)]
            assert made.count(503) == (3 if kind == "streams" else 2), made
            assert node.ask("PUT", f"/{kind}/n0", body).status == 200  # what is there is there


def test_rows_have_a_number_in_json_and_in_arrow(place: Path) -> None:
    with limited(place, rows=100) as node:
        assert node.ask.done("POST", "/streams/s", [{"n": n} for n in range(100)])["next"] == 100
        for body in ([{"n": n} for n in range(101)], b"{}\n" * 101, pa.table({"n": list(range(101))})):
            answer = node.ask("POST", "/streams/s", body)
            assert (answer.status, answer.error) == (413, "too_large")
        assert len(node.ask.rows("/streams/s")) == 100


@pytest.mark.parametrize("path", ["/streams/s?from=0&" + "x" * 5000, "/streams/" + "x" * 5000])
def test_the_first_line_has_a_length(place: Path, path: str) -> None:
    with limited(place, line_bytes=4096) as node:
        assert node.ask("GET", path).status == 400


def test_headers_have_a_number_and_a_length(place: Path) -> None:
    with limited(place, headers=20, header_bytes=1000) as node:
        assert node.ask("GET", "/livez", headers={f"X-{n}": "y" for n in range(10)}).status == 200
        assert node.ask("GET", "/livez", headers={f"X-{n}": "y" for n in range(50)}).status == 400
        assert node.ask("GET", "/livez", headers={"X": "y" * 2000}).status == 400


def test_peers_that_come_and_go_leave_nothing_behind(place: Path) -> None:
    with limited(place) as node:
        for number in range(300):
            with dial(node) as wire:
                wire.sendall(
                    [
                        b"",
                        b"GET /li",
                        b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
                    ][number % 3]
                )
        until(lambda: node.server.door.connections == 0)
        until(lambda: node.server.door.held_bytes == 0)
        until(lambda: node.node.under_way == 0)
        assert node.ask.done("GET", "/livez") == {"alive": True}


# --- FJ, on a connection of the node


def fj_line(node: Served) -> socket.socket:
    wire = dial(node)
    wire.sendall(
        b"GET /journals/j/fj HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: fj\r\n\r\n"
    )
    assert wire.recv(65536).startswith(b"HTTP/1.1 101 ")
    return wire


def setting(size: int) -> bytes:
    return encode_request(Request(int(Function.SET), 1, key=b"k", type=int(Type.BUFFER), value=bytes(size)))


def test_a_request_of_fj_that_does_not_go_on_is_cut_off(place: Path) -> None:
    with limited(place, body_s=0.5) as node:
        node.ask.done("PUT", "/journals/j")
        with fj_line(node) as wire:
            wire.sendall(setting(10)[:-1])
            assert rest(wire) == b""
        until(lambda: node.server.door.held_bytes == 0)


def test_requests_of_fj_that_are_half_sent_count_with_all_others(place: Path) -> None:
    with limited(place, bodies_bytes=1 << 20) as node, ExitStack() as wires:
        node.ask.done("PUT", "/journals/j")
        quiet = wires.enter_context(fj_line(node))
        quiet.sendall(setting(600_000)[:-1])
        until(lambda: node.server.door.held_bytes >= 600_000)
        with fj_line(node) as wire, suppress(ConnectionError):
            wire.sendall(setting(600_000)[:-1])
            assert rest(wire) == b""
        until(lambda: node.server.door.held_bytes < 700_000)
        quiet.sendall(setting(600_000)[-1:])
        assert quiet.recv(65536)
        until(lambda: node.server.door.held_bytes == 0)


def test_a_line_of_fj_may_be_silent_between_requests(place: Path) -> None:
    with limited(place, body_s=0.2, head_s=0.2) as node:
        node.ask.done("PUT", "/journals/j")
        with fj_line(node) as wire:
            for _ in range(2):
                request = setting(10)
                wire.sendall(request[:5])
                wire.sendall(request[5:])
                assert wire.recv(65536)
                time.sleep(0.5)
        until(lambda: node.server.door.held_bytes == 0)


# --- runs that are staged


def test_a_run_goes_to_the_disk_and_counts_as_held_only_until_then(place: Path) -> None:
    count = 2_000_000
    body = ipc(pa.table({"n": pa.array(range(count)), "text": pa.nulls(count, pa.string())}))
    checksum = f"{xxhash.xxh3_64_intdigest(body):016x}"
    with limited(place, bodies_bytes=8 << 20) as node:
        assert len(body) > 15 << 20
        staged = node.ask("PUT", f"/streams/s/staged/q/0/{'a' * 32}", body, {CHECKSUM: checksum})
        assert (staged.status, staged.json["rows"]) == (201, count)
        until(lambda: node.server.door.held_bytes == 0)
