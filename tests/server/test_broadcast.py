"""The broadcast of a stream: followers that have caught up are handed the same bytes, and miss nothing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.client import aio
from headrace.log import Settings, wake
from headrace.server.broadcast import Broadcast
from headrace.server.follower import BEHIND_BYTES, Connection, Follower, Piece
from headrace.server.http_limits import HttpLimits
from stream.samples import Number, in_thread
from waiting import until

from .http_node import Served, served


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store", HttpLimits(drain_s=0.2)) as one:
        yield one


def url(node: Served) -> str:
    return f"http://127.0.0.1:{node.ask.port}"


class Line:
    """A connection whose other end takes nothing."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.sent))

    def is_closing(self) -> bool:
        return False


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 20), st.integers(0, 12))
def test_a_follower_is_handed_what_comes_next_or_leaves(rows: list[int], index: int, start: int) -> None:
    """Whatever was read before it joined, and wherever it is: what it gets has neither gap nor double."""
    line, at = Line(), start
    follower = Follower(index, line)
    for count in rows:
        follower.hand(Piece(at, at + count, b"%d+%d" % (at, count)))
        at += count
    assert follower.index <= max(at, index)
    at = index
    for piece in line.sent:
        first, count = map(int, piece.split(b"+"))
        assert first == at
        at += count
    assert follower.index == at


def test_a_follower_that_takes_nothing_leaves_before_it_costs_much() -> None:
    line = Line()
    follower = Follower(0, line)
    for n in range(100):
        follower.hand(Piece(n, n + 1, bytes(1 << 20)))
    assert follower.gone.is_set()
    assert BEHIND_BYTES <= line.get_write_buffer_size() <= BEHIND_BYTES + (2 << 20)


def test_many_followers_hear_entries_and_heads_from_whoever_publishes(node: Served, place: Path) -> None:
    """First another process publishes, which only the files tell; then the node does."""

    async def heard(connected: threading.Barrier) -> list[tuple[str, int]]:
        async with aio.connect(url(node)) as store:
            stream = await store.stream("s", Number, order_by="n")
            feeds = [stream.listen_with_heads(follow=True) for _ in range(20)]
            firsts = [await anext(feed) for feed in feeds]
            await asyncio.to_thread(connected.wait)
            found = []
            for first, feed in zip(firsts, feeds, strict=True):
                said = [first] + [await anext(feed) for _ in range(11)]
                found.append([("entry" if isinstance(each, hr.Entry) else "head", each.key) for each in said])
            assert found == [found[0]] * 20
            return found[0]

    connected = threading.Barrier(2)
    with hr.open(place / "store") as store, store.stream("s", Number, order_by="n").publisher() as publisher:
        publisher.publish(Number(0))
        publisher.flush()
        hearing = in_thread(lambda: asyncio.run(heard(connected)))
        connected.wait(60)
        for n in range(1, 5):
            publisher.publish(Number(n))
            publisher.flush()
        publisher.head(5)
        publisher.flush()
    with hr.connect(url(node)) as store, store.stream("s", Number, order_by="n").publisher() as publisher:
        for n in range(6, 11):
            publisher.publish(Number(n))
            publisher.flush()
        publisher.head(12)
        assert hearing.result() == [
            *(("entry", n) for n in range(5)),
            ("head", 5),
            *(("entry", n) for n in range(6, 11)),
            ("head", 12),
        ]


def test_a_follower_hears_at_once_of_a_stream_with_write_buffers(node: Served, place: Path) -> None:
    with hr.open(place / "store") as store:
        store.stream("s", bytes, settings=Settings(write_buffers=4))
    with hr.connect(url(node)) as store:
        stream = store.stream("s", bytes)
        heard = stream.listen(follow=True)
        with stream.publisher() as publisher:
            for data in (b"first", b"second"):
                publisher.publish(data)
                publisher.flush()
                assert next(heard).value == data
                until(lambda: len(node.desk.broadcast.followers) == 1, "the follower to be there")


def test_a_follower_that_falls_behind_reads_by_itself_and_comes_back(node: Served) -> None:
    data = [bytes([n]) * (1 << 20) for n in range(40)]
    with hr.connect(url(node)) as store:
        stream = store.stream("s", bytes)
        slow = stream.listen(follow=True)
        with stream.publisher() as publisher:
            publisher.publish(data[0])
            publisher.flush()
            assert next(slow).value == data[0]
            until(lambda: len(node.desk.broadcast.followers) == 1, "the follower to be there")
            for each in data[1:]:
                publisher.publish(each)
            publisher.flush()
            assert [next(slow).value for _ in data[1:]] == data[1:]
            until(lambda: len(node.desk.broadcast.followers) == 1, "the follower to be back")
            publisher.publish(b"last")
            publisher.flush()
            assert next(slow).value == b"last"
        del slow
        until(lambda: node.desk.followers == 0, "the follower to be forgotten")


def test_a_follower_whose_reader_went_while_it_joined_is_forgotten(node: Served) -> None:
    class Closed(Line):
        def is_closing(self) -> bool:
            return True

    node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
    node.ask.done("POST", "/streams/s", [{"n": 1}])
    line = Closed()
    assert node.desk.broadcast.join(1, line) is not None
    node.ask.done("POST", "/streams/s", [{"n": 2}])
    until(lambda: not node.desk.broadcast.followers, "it to be forgotten")
    assert not line.sent


@pytest.mark.parametrize("others", [0, 1])
def test_a_follower_hears_of_a_head_that_moved_while_it_joined(node: Served, others: int) -> None:
    node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}, "order_by": "n"})
    node.ask.done("POST", "/streams/s", [{"n": 1}])
    lines = [Line() for _ in range(others + 1)]
    for line in lines[:-1]:
        node.desk.broadcast.join(1, line)
    node.ask.done("POST", "/streams/s/head", {"key": 50})
    until(lambda: all(line.sent for line in lines[:-1]), "the others to hear of it")
    node.desk.broadcast.read()
    until(lambda: all(len(line.sent) == 2 for line in lines[:-1]), "the files to tell of it as well")
    node.desk.broadcast.join(1, lines[-1])  # it had looked before, and found nothing but the entry
    node.ask.done("POST", "/streams/s", [{"n": 60}])
    for line in lines:  # the same HEAD may be told again: clients take it once
        until(lambda: len(set(line.sent)) == 2, "all to hear of HEAD and of the entry")  # noqa: B023


def test_a_follower_that_joins_while_the_desk_ends_is_not_forgotten(node: Served) -> None:
    node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
    node.ask.done("POST", "/streams/s", [{"n": 1}])
    desk, join = node.desk, node.desk.broadcast.join

    def ended_meanwhile(index: int, connection: Connection, line: socket.socket | None) -> Follower | None:
        ended = threading.Event()
        desk._loop.call_soon_threadsafe(lambda: (desk.end_followers(), ended.set()))
        assert ended.wait(30)
        return join(index, connection, line)

    desk.broadcast.join = ended_meanwhile  # type: ignore[method-assign]
    with (
        socket.create_connection(("127.0.0.1", node.ask.port), timeout=60) as line,
        line.makefile("rb") as it,
    ):
        line.sendall(
            b"GET /streams/s?follow=true HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: Upgrade\r\nUpgrade: headrace-feed\r\n\r\n"
        )
        _head, _, body = it.read().partition(b"\r\n\r\n")  # to its end
    assert pa.ipc.open_stream(body).read_all().column("n").to_pylist() == [1]
    assert not desk.broadcast.followers


def test_a_large_group_behind_other_entries_is_heard_at_once(node: Served) -> None:
    """Nobody is told of its entries as they are written: they may be more than fit into memory."""
    with hr.connect(url(node)) as store:
        stream = store.stream("s", bytes)
        heard = stream.listen(follow=True)
        with stream.publisher() as publisher:
            publisher.publish(b"first")
        assert next(heard).value == b"first"
        desk = node.desk
        until(lambda: len(desk.broadcast.followers) == 1, "the follower to be there")
        records = next(iter(desk.stream.log.read())).records
        busy, free = threading.Event(), threading.Event()

        def ask(work: Callable[[hr.Publisher], object]) -> Future[object]:
            return asyncio.run_coroutine_threadsafe(desk.ask(work), desk._loop)

        asked = [ask(lambda publisher: (busy.set(), free.wait(60)))]
        assert busy.wait(60)
        asked.append(ask(lambda publisher: publisher.publish_batch(pa.Table.from_batches([records]))))
        group = iter([records, records])  # not a list: it is written as it comes
        asked.append(ask(lambda to: to.lend(lambda log, _: log.append_group(group, writer="w", sequence=1))))
        until(lambda: desk._queue.qsize() == 2, "both to be asked for")
        free.set()
        for each in asked:
            each.result(60)
        assert desk.broadcast._index == 4
        assert [next(heard).index for _ in range(3)] == [1, 2, 3]


def test_the_files_are_watched_only_while_this_node_does_not_publish(node: Served, place: Path) -> None:
    """Every write of its own would wake the thread that watches the files of the whole process."""
    with hr.connect(url(node)) as store:
        stream = store.stream("s", bytes)
        heard = stream.listen(follow=True)
        with hr.open(place / "store") as others, others.stream("s").publisher() as publisher:
            publisher.publish(b"theirs")
            publisher.flush()
            assert next(heard).value == b"theirs"
        mark = str((node.desk.stream.log.path / "mark").resolve())
        assert wake._hub is not None
        until(lambda: mark in wake._hub._watches, "it to be watched")
        with stream.publisher() as ours:
            ours.publish(b"ours")
            assert next(heard).value == b"ours"
            until(lambda: mark not in wake._hub._watches, "it to be watched no more")
            ours.publish(b"ours, too")
            assert next(heard).value == b"ours, too"


def test_a_reader_that_goes_while_it_joins_leaves_nothing_behind(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
    node.ask.done("POST", "/streams/s", [{"n": 1}])
    joining, gone, lines = threading.Semaphore(0), threading.Event(), list[socket.socket]()
    join = Broadcast.join

    def late(self: Broadcast, index: int, connection: Connection, line: socket.socket) -> Follower | None:
        lines.append(line)
        joining.release()
        gone.wait(30)
        return join(self, index, connection, line)

    monkeypatch.setattr(Broadcast, "join", late)
    wires = [socket.create_connection(("127.0.0.1", node.ask.port)) for _ in range(3)]
    for wire in wires:
        wire.sendall(
            b"GET /streams/s?follow=true HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: Upgrade\r\nUpgrade: headrace-feed\r\n\r\n"
        )
        assert joining.acquire(timeout=30)
    for wire in wires:
        wire.close()
    until(lambda: node.desk.followers == 0)
    gone.set()
    until(lambda: not node.desk.broadcast.followers and {line.fileno() for line in lines} == {-1})
