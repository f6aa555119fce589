"""Answers that are lost on the way from a node: what is safe is asked again, the rest is told."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.server.http_node import Served, served

import headrace as hr
from headrace.client.errors import ConnectionLost
from headrace.client.remote_journal import RemoteJournal
from headrace.journal.journal import Journal
from headrace.journal.value import Type
from headrace.stream import PublisherTaken
from proxy import Losing, Proxy
from stream.samples import Number


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Proxy, hr.Store]]:
    """A client, the proxy that it talks through, and the node's own store."""
    with (
        served(tmp_path_factory.mktemp("lost") / "store") as node,
        Proxy(("127.0.0.1", node.ask.port)) as proxy,
        hr.connect(proxy.url) as store,
    ):
        yield store, proxy, node.store


@pytest.fixture
def named(request: pytest.FixtureRequest) -> str:
    return "".join(letter for letter in request.node.name if letter.isalnum())[:80]


@pytest.fixture
def jobs(parts: tuple[Any, Proxy, hr.Store], named: str) -> RemoteJournal:
    journal: RemoteJournal = parts[0].journal(named)
    return journal


@pytest.fixture
def proxy(parts: tuple[Any, Proxy, hr.Store]) -> Iterator[Proxy]:
    proxy, before = parts[1], parts[1].cuts
    yield proxy
    assert proxy.cuts > before


@pytest.fixture
def there(parts: tuple[Any, Proxy, hr.Store], named: str, jobs: RemoteJournal) -> Journal:
    """The same journal, as the node has it."""
    return parts[2].journal(named)


@pytest.mark.parametrize("answers", [1, 3])
def test_a_put_is_answered_with_the_id_of_its_one_job(
    jobs: RemoteJournal, proxy: Proxy, there: Journal, answers: int
) -> None:
    proxy.harm = Losing(answers)
    id_ = jobs.put("r", value=5)
    assert [(info.id, info.value) for info in there.jobs()] == [(id_, 5)]


def test_a_put_whose_job_was_taken_meanwhile_is_not_put_again(
    jobs: RemoteJournal, proxy: Proxy, there: Journal
) -> None:
    proxy.harm = Losing()
    id_ = jobs.put("r")
    taken = there.next()
    assert taken
    assert taken.id == id_  # the repeated request was answered, not carried out
    assert there.stats().pending == 0


def test_a_batch_that_is_put_once_is_there_once(jobs: RemoteJournal, proxy: Proxy, there: Journal) -> None:
    proxy.harm = Losing()
    assert jobs.put_batch(["a", "b"], once=("writer", 1)) == []
    assert there.stats().pending == 2


@pytest.mark.parametrize("end", ["done", "fail", "extend"])
def test_the_end_of_a_lease_is_answered_as_it_was(
    jobs: RemoteJournal, proxy: Proxy, there: Journal, end: str
) -> None:
    jobs.put("r")
    job = jobs.next(lease="1h")
    assert job
    before = job.lease_until_us
    proxy.harm = Losing(2)
    if end == "extend":
        job.extend("2h")
        assert job.lease_until_us > before
        job.done()
    else:
        getattr(jobs, end)(job)
    stats = there.stats()
    assert (stats.leased, stats.pending) == (0, 1 if end == "fail" else 0)


def test_values_are_set_and_read_again(jobs: RemoteJournal, proxy: Proxy) -> None:
    for verb in (lambda: jobs.set("k", 5), lambda: jobs.lock("k", "me"), lambda: jobs.get("k")):
        proxy.harm = Losing()
        verb()
    proxy.harm = Losing()
    assert [value.value for value in jobs.range()] == [5]
    proxy.harm = Losing()
    assert jobs.stats().values == 1


_UNSAFE: dict[str, tuple[Callable[[Any], Any], Callable[[Journal], bool]]] = {
    "next": (lambda jobs: jobs.next(), lambda there: there.stats().leased == 1),
    "next_batch": (lambda jobs: jobs.next_batch(5), lambda there: there.stats().leased == 1),
    "put_batch": (lambda jobs: jobs.put_batch(["x"]), lambda there: there.stats().pending == 2),
    "add": (lambda jobs: jobs.add("n", 1), lambda there: _value(there, "n") == 1),
    "flip": (lambda jobs: jobs.flip("b"), lambda there: _value(there, "b") is True),
    "delete": (lambda jobs: jobs.delete("n"), lambda there: _value(there, "n") is None),
    "rename": (lambda jobs: jobs.rename("n", "m"), lambda there: _value(there, "m") == 0),
    "cancel": (lambda jobs: jobs.cancel("r"), lambda there: there.stats().pending == 0),
    "set": (lambda jobs: jobs.set("k", 1, overwrite=False), lambda there: _value(there, "k") == 1),
}


def _value(there: Journal, key: str) -> Any:
    value = there.get(key)
    return None if value is None else value.value


@pytest.mark.parametrize("verb", _UNSAFE)
def test_what_cannot_be_repeated_says_that_nobody_knows_and_is_done_once(
    jobs: RemoteJournal, proxy: Proxy, there: Journal, verb: str
) -> None:
    there.put("r")
    there.set("n", 0)
    there.set("b", False)
    ask, was_done = _UNSAFE[verb]
    proxy.harm = Losing()
    with pytest.raises(ConnectionLost):
        ask(jobs)
    assert was_done(there)


def test_whoever_listens_is_told_again_after_the_connection_broke(
    parts: tuple[Any, Proxy, hr.Store], jobs: RemoteJournal, there: Journal
) -> None:
    told: queue.Queue[tuple[str, Type]] = queue.Queue()
    stop = jobs.listen("k", lambda key, kind: told.put((key, kind)))
    there.set("k", 1)
    assert told.get(timeout=30) == ("k", Type.INTEGER)
    parts[1].cut_all()
    there.set("k", "missed, perhaps")
    while told.get(timeout=30) != ("k", Type.STRING):
        pass
    there.delete("k")
    while told.get(timeout=30) != ("k", Type.VOID):
        pass
    stop()


def test_a_node_that_stops_ends_those_who_wait_and_listen(place: Path) -> None:
    with served(place / "store") as node, hr.connect(f"http://127.0.0.1:{node.ask.port}") as store:
        jobs = store.journal("pages")
        jobs.listen("k", lambda key, kind: None)
        node.stop()


class Barring(Losing):
    """An answer is lost, and before its publisher comes again, somebody else holds the stream alone."""

    def __init__(self, node: Served) -> None:
        super().__init__()
        self._node = node

    def pieces(self, piece: bytes) -> Iterator[bytes]:
        if self.left:
            self._node.ask.done("POST", "/streams/s/publisher", {"id": "other"})
        yield from super().pieces(piece)


def test_a_batch_that_is_refused_after_its_answer_was_lost_is_not_taken_for_another(place: Path) -> None:
    with (
        served(place / "store") as node,
        Proxy(("127.0.0.1", node.ask.port)) as proxy,
        hr.connect(proxy.url) as store,
    ):
        stream = store.stream("s", Number)
        with stream.publisher(shared=True) as publisher:
            publisher.publish(Number(0))
            publisher.flush()
            proxy.harm = Barring(node)
            publisher.publish(Number(1))
            with pytest.raises(PublisherTaken):
                publisher.flush()
            with suppress(PublisherTaken):  # of what was tried in the background
                publisher.publish(Number(2))
            node.ask.done("DELETE", "/streams/s/publisher", {"id": "other"})
            with suppress(PublisherTaken):
                publisher.flush()
            publisher.flush()
        assert [entry.value.n for entry in stream.listen()] == [0, 1, 2]


def test_a_table_that_is_refused_after_its_answer_was_lost_does_not_hide_the_next(place: Path) -> None:
    with (
        served(place / "store") as node,
        Proxy(("127.0.0.1", node.ask.port)) as proxy,
        hr.connect(proxy.url) as store,
    ):
        stream = store.stream("s", Number)
        with stream.publisher(shared=True) as publisher:
            publisher.publish_batch(pa.table({"n": [0]}))
            proxy.harm = Barring(node)
            with pytest.raises(PublisherTaken):
                publisher.publish_batch(pa.table({"n": [1]}))
            node.ask.done("DELETE", "/streams/s/publisher", {"id": "other"})
            publisher.publish_batch(pa.table({"n": [2, 3]}))
        assert [entry.value.n for entry in stream.listen()] == [0, 1, 2, 3]
