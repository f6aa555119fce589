"""Nodes that are away for too long, and stores that are closed: who waits for them ends, and says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import headrace as hr
from conformance.faces import node
from headrace.client import aio
from headrace.client.errors import CannotConnect, ConnectionLost, NoAnswer
from headrace.client.node_line import AWAY, NOT_DONE, Absence, NodeLine, Patience, failure
from headrace.kernel.backoff import Backoff
from headrace.kernel.errors import Busy, Closed
from proxy import Proxy

HASTY = Patience(away_s=0.2, pause=Backoff(first_s=0.01, factor=2.0, longest_s=0.05))
BATCHES = 64
ROWS = 256
"""Of 1 KiB: more in all than the buffers of a connection hold."""


def filled(store: hr.Store | hr.RemoteStore) -> None:
    with store.stream("s", bytes).publisher() as publisher:
        for _ in range(BATCHES):
            for _ in range(ROWS):
                publisher.publish(bytes(1024))
            publisher.flush()


@contextmanager
def lone_proxy(status: int) -> Iterator[tuple[str, list[str]]]:
    """Answers everything with that status, as a proxy does whose node does not; what it was asked."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_error(status)

        def log_message(self, *arguments: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "kind"), [(502, ConnectionLost), (503, ConnectionLost), (504, NoAnswer)])
def test_what_a_proxy_answers_in_the_place_of_a_node_may_have_been_done(
    status: int, kind: type[Exception]
) -> None:
    async def ask(url: str) -> None:
        line = NodeLine(url, patience=HASTY)
        try:
            await line.surely(lambda: line.ask("POST", "/journals/j/add"), NOT_DONE)
        finally:
            await line.close()

    with lone_proxy(status) as (url, asked), pytest.raises(kind, match="not as a node does"):
        asyncio.run(ask(url))
    assert asked == ["/journals/j/add"]


def test_only_a_node_itself_can_say_that_nothing_was_done() -> None:
    assert isinstance(failure(b'{"error": "busy", "message": "later"}', 503), Busy)
    for status in (502, 503, 504):
        error = failure(b"<html>", status)
        assert isinstance(error, AWAY)
        assert not isinstance(error, NOT_DONE)


def test_an_async_listener_that_reaches_nobody_says_so(place: Path) -> None:
    async def listen(proxy: Proxy) -> None:
        async with aio.connect(proxy.url, patience=HASTY) as store:
            stream = await store.stream("s", bytes)
            proxy.__exit__(None, None, None)
            async for _ in stream.listen(8, follow=True):
                pass

    with node(place / "data") as url, pytest.raises(CannotConnect):
        asyncio.run(listen(Proxy.to(url).__enter__()))


def test_a_feed_that_never_began_still_begins_where_it_was_told_to(place: Path) -> None:
    async def listen(proxy: Proxy) -> list[int]:
        async with aio.connect(proxy.url) as store:
            stream = await store.stream("s", bytes)
            feed = stream.feed(8, None, follow=False)
            feed.leave_line()
            return [feed.index for _ in await feed.more()]

    with node(place / "data") as url, hr.connect(url) as store, Proxy.to(url) as proxy:
        with store.stream("s", bytes).publisher() as publisher:
            for n in range(10):
                publisher.publish(b"%d" % n)
        assert asyncio.run(listen(proxy)) == [10]


def test_a_read_with_an_end_raises_if_its_node_stays_away(place: Path) -> None:
    with node(place / "data") as url:
        proxy = Proxy.to(url).__enter__()
        with hr.connect(proxy.url, patience=HASTY) as store:
            filled(store)
            entries = store.stream("s", bytes).listen()
            next(entries)
            proxy.__exit__(None, None, None)
            with pytest.raises(CannotConnect):
                for _ in entries:
                    pass


@pytest.mark.parametrize("face", ["open", "connect"])
def test_a_read_with_an_end_that_is_cut_short_by_closing_says_so(place: Path, face: str) -> None:
    with node(place / "data") as url, hr.connect(url) as filling:
        filled(filling)
        store = hr.open(place / "data") if face == "open" else hr.connect(url)
        batches = store.stream("s", bytes).listen_batches()
        next(batches)
        store.close()
        with pytest.raises(Closed):
            for _ in batches:
                pass


@pytest.mark.parametrize("follow", [False, True])
def test_closing_an_async_store_ends_its_listeners(place: Path, follow: bool) -> None:
    async def listen(url: str) -> int:
        store, count = aio.connect(url), 0
        try:
            async for batch in (await store.stream("s", bytes)).listen_batches(follow=follow):
                count += batch.records.num_rows
                if batch.next_index == BATCHES * ROWS or not follow:
                    asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(store.close()))
        except Closed:
            assert not follow
            return -1
        return count

    with node(place / "data") as url, hr.connect(url) as store:
        filled(store)
        assert asyncio.run(listen(url)) == (BATCHES * ROWS if follow else -1)


class TestAbsence:
    """Time passes only while somebody rests."""

    @pytest.fixture(autouse=True)
    def _clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.tries = 1000.0, 0
        monkeypatch.setattr("headrace.client.node_line.time.monotonic", lambda: self.now)

    def ask(self, absence: Absence, away: bool = True) -> int:
        """How often it is tried."""
        self.tries = 0

        async def work() -> None:
            self.tries += 1
            if away:
                raise CannotConnect("nobody")

        async def rest(seconds: float) -> None:
            self.now += seconds

        try:
            asyncio.run(absence.surely(work, rest, lambda: False))
        except CannotConnect:
            assert away
        return self.tries

    def test_who_comes_after_one_that_has_given_up_looks_once(self) -> None:
        absence = Absence(Patience(away_s=60.0))
        assert self.ask(absence) > 10
        assert self.ask(absence) == 1

    def test_a_node_that_was_there_since_is_waited_for_again(self) -> None:
        absence = Absence(Patience(away_s=60.0))
        self.ask(absence)
        assert self.ask(absence, away=False) == 1
        assert self.ask(absence) > 10

    def test_what_failed_long_ago_does_not_count(self) -> None:
        absence = Absence(Patience(away_s=60.0))
        self.ask(absence)
        self.now += 61.0
        assert self.ask(absence) > 10
