"""Journals over HTTP: a tour, what is refused, and the same journal over FJ."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.client.fj import connect
from headrace.journal.job import Job
from headrace.kernel.errors import Broken, DiskFailed
from headrace.server.http_limits import HttpLimits
from headrace.wire.fj import RANGE, Function, Request, encode_request
from waiting import until

from .http_node import Served, served


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store", fj="pages") as one:
        yield one


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all that is refused: it changes nothing, and each test looks whether that is so."""
    with served(tmp_path_factory.mktemp("node") / "store", fj="pages") as one:
        yield one


def put(node: Served, **job: Any) -> int:
    answer = node.ask("POST", "/journals/pages/put", job)
    assert answer.status == 201, answer
    id_: int = answer.json["id"]
    return id_


def take(node: Served, **wanted: Any) -> Any:
    return node.ask.done("POST", "/journals/pages/next", wanted)["job"]


def stats(node: Served) -> Any:
    return node.ask.done("GET", "/journals/pages/stats")


# --- the tour


def test_put_makes_a_journal_and_says_whether_it_was_made_now(node: Served) -> None:
    assert node.ask("PUT", "/journals/other").status == 201
    assert node.ask("PUT", "/journals/other").json == {"name": "other", "created": False}
    assert node.ask.done("GET", "/journals") == {"journals": ["other", "pages"]}


def test_a_job_is_put_taken_and_done(node: Served) -> None:
    id_ = put(node, resource="https://example.com/a", priority=10, value="text")
    job = take(node, domain="example.com", lease="1h")
    assert (job["id"], job["resource"], job["domain"]) == (id_, "https://example.com/a", "example.com")
    assert (job["priority"], job["value"], job["attempts"]) == (10, "text", 1)
    assert take(node) is None  # it is being worked on
    answer = node.ask.done("POST", "/journals/pages/done", {"id": id_})
    assert answer == {"id": id_}
    assert (stats(node)["done"], stats(node)["leased"]) == (1, 0)


def test_the_smallest_priority_comes_first(node: Served) -> None:
    for priority in (200, 3, 100):
        put(node, resource=f"r{priority}", priority=priority)
    assert [take(node)["priority"] for _ in range(3)] == [3, 100, 200]


def test_a_job_that_failed_comes_again(node: Served) -> None:
    id_ = put(node, resource="r")
    for attempt in (1, 2, 3):
        job = take(node)
        assert (job["id"], job["attempts"]) == (id_, attempt)
        node.ask.done("POST", "/journals/pages/fail", {"id": id_, "retry_in": 0})
    take(node)
    node.ask.done("POST", "/journals/pages/fail", {"id": id_, "retry_in": "1h"})
    answer = node.ask.done("POST", "/journals/pages/next")
    assert answer["job"] is None
    assert answer["next_at_us"] > 0


def test_a_job_may_be_due_later(node: Served) -> None:
    put(node, resource="later", after="1h")
    answer = node.ask.done("POST", "/journals/pages/next")
    assert answer["job"] is None
    put(node, resource="at once", due_us=answer["next_at_us"] - 7_200_000_000)
    assert take(node)["resource"] == "at once"


@pytest.mark.parametrize("value", [None, "text", "", 5, -(1 << 63), 1.5, True, {"base64": "/wA="}])
def test_a_value_comes_back_as_it_was_given(node: Served, value: Any) -> None:
    put(node, resource="r", value=value)
    job = take(node, delete=True)
    assert (job["value"], type(job["value"])) == (value, type(value))
    assert stats(node)["leased"] == 0  # taken for good


def test_next_waits_for_a_job(node: Served) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, node, domain="example.com", wait="30s")
        until(lambda: node.node.under_way == 1)
        put(node, resource="https://example.com/late")
        assert waiting.result(30)["resource"] == "https://example.com/late"
    assert take(node, wait="10ms") is None


# --- what is refused


@pytest.mark.parametrize(
    ("verb", "body", "status", "code"),
    [
        ("put", b"", 400, "bad_request"),
        ("put", b"{", 400, "bad_request"),
        ("put", b"[]", 400, "bad_request"),
        ("put", b"\xff", 400, "bad_request"),
        ("put", b'{"\xe6": 1}', 400, "bad_request"),
        ("put", {"resource": ""}, 400, "bad_request"),
        ("put", {"resource": 5}, 400, "bad_request"),
        ("put", {"resource": "r", "nope": 1}, 400, "bad_request"),
        ("put", {"resource": "r", "priority": 256}, 400, "bad_request"),
        ("put", {"resource": "r", "priority": "high"}, 400, "bad_request"),
        ("put", {"resource": "r", "after": "soon"}, 400, "bad_duration"),
        ("put", {"resource": "r", "after": -1}, 400, "bad_duration"),
        ("put", {"resource": "r", "after": 1, "due_us": 1}, 400, "bad_request"),
        ("put", {"resource": "r", "due_us": -1}, 400, "bad_request"),
        ("put", {"resource": "r", "value": [1]}, 400, "bad_request"),
        ("put", {"resource": "r", "value": {"text": "x"}}, 400, "bad_request"),
        ("put", {"resource": "r", "value": {"base64": "a"}}, 400, "bad_request"),
        ("put", {"resource": "r", "value": {"base64": "é"}}, 400, "bad_request"),
        ("put", {"resource": "r", "value": 1 << 64}, 400, "out_of_range"),
        ("put", {"resource": "r" * 100_000}, 413, "too_large"),
        ("next", {"wait": "2m"}, 400, "bad_request"),
        ("next", {"wait": "long"}, 400, "bad_duration"),
        ("next", {"lease": 0}, 400, "bad_request"),
        ("next", {"domain": 5}, 400, "bad_request"),
        ("done", {}, 400, "bad_request"),
        ("done", {"id": "1"}, 400, "bad_request"),
        ("done", {"id": 99}, 400, "lease_lost"),
        ("done", {"id": -1}, 400, "lease_lost"),
        ("done_batch", {"ids": [1, 2], "lease_until_us": [5]}, 400, "bad_request"),
        ("done", {"id": 1 << 70}, 400, "lease_lost"),
        ("fail", {"id": 99}, 400, "lease_lost"),
        ("fail", {"id": 0, "retry_in": "soon"}, 400, "bad_duration"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_request_is_refused_and_changes_nothing(
    lasting: Served, verb: str, body: Any, status: int, code: str
) -> None:
    before = stats(lasting)
    answer = lasting.ask("POST", f"/journals/pages/{verb}", body)
    assert (answer.status, answer.error) == (status, code)
    assert stats(lasting) == before


def test_a_journal_that_is_not_there_is_told(node: Served) -> None:
    for verb in ("put", "next", "done", "fail"):
        body = {"resource": "r"} if verb == "put" else {"id": 1} if verb != "next" else {}
        assert node.ask("POST", f"/journals/none/{verb}", body).error == "not_found"
    assert node.ask("GET", "/journals/none/stats").error == "not_found"
    assert node.ask.done("GET", "/journals") == {"journals": ["pages"]}


def test_a_journal_that_somebody_else_has_open_is_told(place: Path) -> None:
    with hr.open(place / "store") as store, store.journal("pages"), served(place / "store") as node:
        for method, path in (("PUT", "/journals/pages"), ("GET", "/journals/pages/stats")):
            answer = node.ask(method, path)
            assert (answer.status, answer.error) == (409, "journal_taken")


def test_a_worker_whose_lease_ended_cannot_finish_the_job_of_another(node: Served) -> None:
    put(node, resource="r")
    late = take(node, lease="1ms")
    now = take(node, lease="1h", wait="30s")  # the same job, once its lease has ended
    assert now["id"] == late["id"]
    proof = {"id": late["id"], "lease_until_us": late["lease_until_us"]}
    for verb in ("done", "fail"):
        answer = node.ask("POST", f"/journals/pages/{verb}", proof)
        assert (answer.status, answer.error) == (400, "lease_lost")
    node.ask.done("POST", "/journals/pages/done", {**proof, "lease_until_us": now["lease_until_us"]})


# --- many at once, and FJ


def test_no_job_is_given_to_two_workers(node: Served) -> None:
    for n in range(60):
        put(node, resource=f"r{n}")

    def work(_: int) -> list[int]:
        return [job["id"] for job in iter(lambda: take(node), None)]

    with ThreadPoolExecutor(8) as pool:
        taken = Counter(id_ for part in pool.map(work, range(8)) for id_ in part)
    assert len(taken) == 60
    assert set(taken.values()) == {1}


def test_a_worker_that_goes_while_it_waits_takes_no_job_along(node: Served) -> None:
    with socket.create_connection(("127.0.0.1", node.ask.port)) as going:
        body = b'{"domain": "d", "wait": "30s"}'
        head = b"POST /journals/pages/next HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        going.sendall(head + body)
        until(lambda: node.node.under_way == 1)
    until(lambda: node.node.under_way == 0)
    put(node, resource="r", domain="d")
    job = take(node, domain="d", wait="3s")
    assert job is not None
    assert job["resource"] == "r"


def test_http_and_fj_work_on_the_same_journal(node: Served) -> None:
    with connect(port=node.fj_port) as fj:
        fj.put("https://example.com/from-fj", value=b"\xff")
        job = take(node)
        assert (job["resource"], job["value"]) == ("https://example.com/from-fj", {"base64": "/w=="})
        node.ask.done("POST", "/journals/pages/done", {"id": job["id"]})
        put(node, resource="https://example.com/from-http", value="text")
        found = fj.next("example.com")
        assert isinstance(found, Job)
        assert (found.resource, found.value) == ("https://example.com/from-http", "text")
        found.done()
    assert (stats(node)["done"], stats(node)["pending"]) == (2, 0)


def test_a_resource_that_is_not_text_can_be_taken_over_http(node: Served) -> None:
    """FJ's resources are bytes: a JSON answer has to say them somehow."""
    with socket.create_connection(("127.0.0.1", node.fj_port), timeout=30) as fj:
        fj.sendall(encode_request(Request(Function.SET, 1, RANGE, 1, None, 0, b"d:1:0", b"\xff\xfe")))
        fj.recv(1000)
        job = take(node, domain="d")
    assert job is not None
    node.ask.done("POST", "/journals/pages/done", {"id": job["id"]})


def test_stopping_does_not_wait_for_those_who_wait_for_jobs(place: Path) -> None:
    with served(place / "store", HttpLimits(drain_s=30)) as node:
        node.ask.done("PUT", "/journals/pages")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(take, node, wait="60s")
            until(lambda: node.node.under_way == 1)
            stopping = threading.Thread(target=node.stop)
            stopping.start()
            assert waiting.result(25) is None  # answered, not cut; and long before the minute is over
            stopping.join(30)


def test_jobs_survive_a_stop(place: Path) -> None:
    with served(place / "store") as node:
        node.ask.done("PUT", "/journals/pages")
        put(node, resource="a")
        put(node, resource="b")
        first = take(node)
    with served(place / "store") as node:
        node.ask.done("POST", "/journals/pages/done", {"id": first["id"]})
        assert take(node)["resource"] == "b"


# --- a disk that fails once


def breaking(node: Served) -> None:
    """The next sync of the journal fails, and with it the journal."""
    (journal,) = node.node.journals

    def fail(*_: object) -> None:
        raise DiskFailed("the disk failed just now")

    journal.engine._ledger._tail.sync = fail  # type: ignore[method-assign]


def test_a_journal_whose_disk_failed_once_is_opened_again_and_has_what_it_acknowledged(place: Path) -> None:
    with served(place / "store") as node:
        node.ask.done("PUT", "/journals/pages")
        put(node, resource="before")
        breaking(node)
        refused = node.ask("POST", "/journals/pages/put", {"resource": "during"})
        assert (refused.status, refused.error) == (500, "broken")
        figures = node.ask("GET", "/metrics")
        assert figures.status == 200
        assert b'headrace_journal_up{journal="pages"} 0.0' in figures.body
        put(node, resource="after")
        assert take(node)["resource"] == "before"
        assert b'headrace_journal_up{journal="pages"} 1.0' in node.ask("GET", "/metrics").body


def test_those_who_speak_fj_go_over_to_a_journal_that_was_opened_again(place: Path) -> None:
    with served(place / "store") as node:
        node.ask.done("PUT", "/journals/pages")

        async def listening() -> int:
            server = await node.node.fj("pages")
            await server.listen("127.0.0.1", 0)
            return server.address[1]

        port = asyncio.run_coroutine_threadsafe(listening(), node.loop).result(60)
        with connect(port=port) as fj:
            fj.set("before", 1)
            broken = node.node.journals
            breaking(node)
            with pytest.raises(Broken):
                fj.set("during", 2)
            until(lambda: node.node.journals != broken)
        with connect(port=port) as fj:
            fj.set("after", 3)
            assert fj.get("before").value == 1
        assert node.ask.done("POST", "/journals/pages/get", {"key": "after"})["value"]["value"] == 3
