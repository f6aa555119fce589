"""What a request begins for everybody is not left half done, if whoever asked goes meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.kernel.errors import Closed
from headrace.server.http_chunks import Pieces
from headrace.stream.publisher import Publisher
from waiting import until

from .http_node import Served, served

FIELDS = {"fields": {"n": "int64"}}


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store") as one:
        one.ask.done("PUT", "/streams/s", FIELDS)
        yield one


def test_a_stream_that_was_opened_for_somebody_who_has_gone_is_closed(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, gone, ensure = threading.Event(), threading.Event(), hr.Store.ensure

    def slow(self: hr.Store, *given: Any) -> Any:
        stream = ensure(self, *given)
        opened.set()
        gone.wait(30)
        return stream

    monkeypatch.setattr(hr.Store, "ensure", slow)
    body = json.dumps(FIELDS).encode()
    before = len(node.store._open)
    with socket.create_connection(("127.0.0.1", node.ask.port)) as wire:
        head = b"PUT /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        wire.sendall(head + body)
        assert opened.wait(30)
        assert len(node.store._open) == before + 1
    until(lambda: node.node.under_way == 0)
    gone.set()
    until(lambda: len(node.store._open) == before)


def test_a_desk_is_closed_to_its_end_before_there_is_another(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gone, publish_batch = threading.Event(), threading.Event(), Publisher.publish_batch

    def slow(self: Publisher, *given: Any, **named: Any) -> Any:
        begun.set()
        gone.wait(30)
        return publish_batch(self, *given, **named)

    monkeypatch.setattr(Publisher, "publish_batch", slow)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(node.ask, "POST", "/streams/s", [{"n": 1}])
        assert begun.wait(30)
        closing = asyncio.run_coroutine_threadsafe(node.node.reopen_stream("s"), node.loop)
        until(lambda: not node.node.desks)
        closing.cancel()
        second = pool.submit(node.ask, "POST", "/streams/s", [{"n": 2}])
        wait([second], timeout=0.5)  # it has to wait for the other desk, as long as that takes
        gone.set()
        assert [each.result(30).json["next"] for each in (first, second)] == [1, 2]


def test_a_step_that_fails_for_a_reader_who_has_gone_is_nobodys_news(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gone, over = threading.Event(), threading.Event(), threading.Event()

    def failing(self: Pieces) -> list[bytes]:
        begun.set()
        gone.wait(30)
        raise Closed("the stream is closed")

    monkeypatch.setattr(Pieces, "step", failing)
    monkeypatch.setattr(Pieces, "close", lambda self: over.set())
    with socket.create_connection(("127.0.0.1", node.ask.port)) as wire:
        wire.sendall(b"GET /streams/s HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert begun.wait(30)
    until(lambda: node.node.under_way == 0)
    gone.set()
    assert over.wait(30)
    node.ask.done("GET", "/livez")
    gc.collect()
    assert node.failures == []
