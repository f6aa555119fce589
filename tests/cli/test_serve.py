"""`headrace serve` as the service it is: where it listens, how it ends, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import headrace, service

import headrace as hr
from headrace.client.fj import connect


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse().read()
    connection.close()
    return json.loads(answer)


def test_it_says_where_it_is_serves_both_protocols_and_ends_well_at_sigterm(place: Path) -> None:
    words = ("--port", "0", "--journal", "pages", "--fj-port", "0", "--json", "--store", place / "data")
    with service("serve", *words) as process:
        facts = json.loads(first_line(process))
        assert (facts["host"], facts["journal"]) == ("127.0.0.1", "pages")
        port = facts["port"]
        ask(port, "PUT", "/streams/s", {"fields": {"n": "int64"}})
        ask(port, "POST", "/streams/s", {"n": 1})
        with connect(port=facts["fj_port"]) as fj:
            fj.put("a")
        assert ask(port, "GET", "/journals/pages/stats")["pending"] == 1
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "")
        assert json.loads(err) == {"note": "stopped after 3 requests"}
    with hr.open(place / "data") as store:
        assert [entry.value for entry in store.stream("s").listen()] == [{"n": 1}]
        assert [job.resource for job in store.journal("pages").jobs()] == ["a"]


def test_at_a_signal_what_was_taken_is_answered_and_followers_end(place: Path) -> None:
    with service("serve", "--port", "0", "--store", place / "data") as process:
        line = first_line(process)
        found = re.fullmatch(rf"serving {place}/data at http://127\.0\.0\.1:(\d+)\n", line)
        assert found, line
        port = int(found[1])
        ask(port, "PUT", "/streams/s", {"fields": {"n": "int64"}})
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/streams/s?follow=true")
        follower = connection.getresponse()
        acknowledged: list[int] = []

        def publish() -> None:
            for n in range(100_000):
                try:
                    acknowledged.append(ask(port, "POST", "/streams/s", {"n": n})["first"])
                except (OSError, http.client.HTTPException, KeyError, json.JSONDecodeError):
                    return

        publishing = threading.Thread(target=publish)
        publishing.start()
        followed = [follower.readline() for _ in range(20)]
        process.send_signal(signal.SIGINT)
        followed += follower.read().splitlines()  # to its end: it was not cut
        publishing.join(30)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "")
        *late, last = err.splitlines()
        assert re.fullmatch(r"stopped after [\d,]+ requests", last)
        assert all("answered with 503" in line for line in late)  # who came after the signal
    with hr.open(place / "data") as store:
        stored = [entry.value["n"] for entry in store.stream("s").listen()]
    assert stored == list(range(len(stored)))
    assert set(acknowledged) <= set(stored)
    assert [json.loads(row)["n"] for row in followed] == stored[: len(followed)]


def test_a_publish_that_is_half_sent_at_sigterm_is_answered(place: Path) -> None:
    with service("serve", "--port", "0", "--json", "--store", place / "data") as process:
        port = json.loads(first_line(process))["port"]
        ask(port, "PUT", "/streams/s", {"fields": {"n": "int64"}})
        lines = [b'{"n": %d}\n' % n for n in range(100)]
        with socket.create_connection(("127.0.0.1", port), timeout=30) as wire:
            head = b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            wire.sendall(head % sum(map(len, lines)) + b"".join(lines[:50]))
            while "headrace_requests_under_way 2" not in metrics(port):
                pass
            process.send_signal(signal.SIGTERM)
            while refuses(port) is False:
                pass
            wire.sendall(b"".join(lines[50:]))
            response = http.client.HTTPResponse(wire)
            response.begin()
            assert (response.status, json.loads(response.read())["next"]) == (200, 100)
        assert process.wait(30) == 0
    with hr.open(place / "data") as store:
        assert store.stream("s").next_index == 100


def metrics(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def refuses(port: int) -> bool:
    """Whether nobody listens there any more. One that came just before is reset: the next one tells."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass
    return False


def test_a_port_that_is_taken_is_one_clear_line(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        outcome = headrace("serve", "--port", port, "--store", place / "data")
        assert (outcome.code, outcome.out) == (1, b"")
        assert outcome.err.startswith(f"error (refused): 127.0.0.1:{port} cannot be listened on")
        assert outcome.err.endswith("choose another --port\n")
        assert outcome.err.count("\n") == 1
        words = ("--port", "0", "--journal", "pages", "--fj-port", port, "--store", place / "data")
        outcome = headrace("serve", *words)
        assert (outcome.code, outcome.out) == (1, b"")
        assert outcome.err.endswith("choose another --fj-port\n")
        assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "no.such.host.invalid"])
def test_hosts_that_others_can_reach_are_refused(place: Path, host: str) -> None:
    outcome = headrace("serve", "--host", host, "--port", "0", "--store", place / "data")
    assert (outcome.code, outcome.out) == (1, b"")
    assert outcome.err.startswith("error (refused): ")
    assert outcome.err.count("\n") == 1
    for option in re.findall(r"--[-a-z]+", outcome.err):  # what it tells people to say can be said
        assert option in headrace("serve", "--help").text
    assert not (place / "data").exists()


def test_what_cannot_be_served_is_one_clear_line(place: Path) -> None:
    (place / "file").write_text("no store")
    assert headrace("serve", "--store", place / "file").err.startswith("error (not_a_log): ")
    outcome = headrace(
        "serve", "--port", "0", "--journal", "../x", "--fj-port", "0", "--store", place / "data"
    )
    assert (outcome.code, outcome.err.startswith("error (bad_name): ")) == (1, True), outcome
    with hr.open(place / "data") as store, store.journal("pages"):
        words = ("--port", "0", "--journal", "pages", "--fj-port", "0", "--store", place / "data")
        assert headrace("serve", *words).err.startswith("error (journal_taken): ")
    assert headrace("serve", "--port", "70000").code == 2
