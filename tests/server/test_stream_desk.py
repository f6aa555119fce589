"""The desk of a stream when its threads cannot do their work for a while: nobody hangs, and it goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.kernel.errors import DiskFailed
from headrace.log.read_verbs import ReadVerbs
from headrace.server.broadcast import Broadcast
from headrace.stream.publisher import Publisher
from waiting import until

from .http_node import Served, served


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store") as one:
        one.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
        yield one


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The machine gives the node no thread for a desk, until this is undone."""
    start = threading.Thread.start

    def refused(self: threading.Thread) -> None:
        if self.name in ("headrace-publish", "headrace-watch"):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refused)
    return monkeypatch


def test_a_publisher_for_whom_no_thread_is_there_is_told_so_and_may_try_again(
    node: Served, no_threads: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        refused = node.ask("POST", "/streams/s", [{"n": 1}])
        assert (refused.status, refused.error) == (503, "busy")
    no_threads.undo()
    assert node.ask.done("POST", "/streams/s", [{"n": 1}])["next"] == 1


def test_a_follower_for_whom_no_thread_is_there_is_told_so_and_may_try_again(
    node: Served, no_threads: pytest.MonkeyPatch
) -> None:
    refused = node.ask("GET", "/streams/s?follow=true")
    assert (refused.status, refused.error) == (503, "busy")
    no_threads.undo()
    follower = node.ask.following("/streams/s?follow=true")
    node.ask.done("POST", "/streams/s", [{"n": 1}])
    assert follower.next() == {"_index": 0, "n": 1}
    follower.close()


def test_a_copy_for_which_no_thread_is_there_may_try_again(
    node: Served, no_threads: pytest.MonkeyPatch
) -> None:
    node.ask.done("PUT", "/journals/j")
    assert b"busy" in node.ask("GET", "/journals/j/frames").body
    no_threads.undo()
    assert node.ask.status_of("GET", "/journals/j/frames") == 200


def test_followers_hear_of_other_publishers_although_watching_failed_once(
    node: Served, place: Path, monkeypatch: pytest.MonkeyPatch, quiet_log: None
) -> None:
    cursor, failed = ReadVerbs.cursor, threading.Event()

    def failing(self: Any, *arguments: Any, **named: Any) -> Any:
        if threading.current_thread().name == "headrace-watch" and not failed.is_set():
            failed.set()
            raise DiskFailed("there was no file to be had")
        return cursor(self, *arguments, **named)

    monkeypatch.setattr(ReadVerbs, "cursor", failing)
    follower = node.ask.following("/streams/s?follow=true")
    assert failed.wait(30)
    with hr.open(place / "store") as store, store.stream("s").publisher() as publisher:
        publisher.publish_batch([{"n": 1}])
    assert follower.next() == {"_index": 0, "n": 1}
    with hr.open(place / "store") as store, store.stream("s").publisher() as publisher:
        publisher.publish_batch([{"n": 2}])
    assert follower.next() == {"_index": 1, "n": 2}
    follower.close()


def test_whatever_fails_in_the_publishing_thread_it_goes_on(
    node: Served, monkeypatch: pytest.MonkeyPatch, quiet_log: None
) -> None:
    def failing(self: Publisher) -> None:
        raise MemoryError("no room for that")

    node.ask.done("POST", "/streams/s", [{"n": 1}])
    with monkeypatch.context() as failed:
        failed.setattr(Publisher, "flush", failing)
        assert node.ask("POST", "/streams/s", [{"n": 2}]).status == 500
    once = {"Headrace-Producer": "p", "Headrace-Sequence": "1"}
    node.ask.done("POST", "/streams/s", [{"n": 3}], once)
    assert node.ask.rows("/streams/s")[-1]["n"] == 3


def test_what_cannot_be_packed_for_all_followers_is_read_by_each(
    node: Served, monkeypatch: pytest.MonkeyPatch, quiet_log: None
) -> None:
    def failing(self: Broadcast, item: object) -> None:
        raise MemoryError("no room for that")

    with hr.connect(f"http://127.0.0.1:{node.ask.port}") as store:
        heard = store.stream("s").listen(follow=True)
        node.ask.done("POST", "/streams/s", [{"n": 1}])
        assert next(heard).value == {"n": 1}
        until(lambda: len(node.desk.broadcast.followers) == 1)
        with monkeypatch.context() as failed:
            failed.setattr(Broadcast, "_piece", failing)
            node.ask.done("POST", "/streams/s", [{"n": 2}])
        assert next(heard).value == {"n": 2}
        node.ask.done("POST", "/streams/s", [{"n": 3}])
        assert next(heard).value == {"n": 3}
