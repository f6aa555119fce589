"""`headrace stream follow` and `unfollow`, and a node that keeps copies of another node's streams."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.cli.kept_replicas import KeptReplicas
from headrace.client.node_line import NodeLine
from server.http_node import Served, served
from waiting import until

from .running import headrace, service

FIELDS = {"fields": {"n": "int64"}}


def filled(node: Served, name: str = "s", count: int = 3) -> str:
    node.ask.done("PUT", f"/streams/{name}", FIELDS)
    node.ask.done("POST", f"/streams/{name}", [{"n": n} for n in range(count)])
    return f"http://127.0.0.1:{node.ask.port}"


def last_row(node: Served, name: str) -> dict[str, Any]:
    """Empty while the stream is opened anew: who reads then is cut off, or told to come again."""
    try:
        answer = node.ask("GET", f"/streams/{name}")
    except http.client.HTTPException:
        return {}
    assert answer.status in (200, 503), answer
    return answer.lines[-1] if answer.status == 200 else {}


def test_follow_once_and_unfollow(place: Path) -> None:
    copy = place / "copy"
    with served(place / "source") as node:
        url = filled(node)
        done = headrace("stream", "follow", url, "s", "--as", "mine", "--once", "--json", "--store", copy)
        assert done.code == 0, done
        assert (done.json["name"], done.json["entries"], done.json["next_index"]) == ("mine", 3, 3)
        again = headrace("stream", "follow", url, "s", "--as", "mine", "--once", "--store", copy)
        assert again.text == "mine ends at index 3: 0 entries, 0 bytes came\n"
    refused = headrace("stream", "publish", "mine", "--json", "--store", copy, given=b'{"n": 3}\n')
    assert refused.error["code"] == "is_replica"
    assert "headrace stream unfollow" in refused.error["message"]
    assert headrace("stream", "unfollow", "mine", "--json", "--store", copy).json["url"] == url
    assert headrace("stream", "publish", "mine", "--store", copy, given=b'{"n": 3}\n').code == 0
    assert headrace("stream", "cat", "mine", "--store", copy).text == '{"n":0}\n{"n":1}\n{"n":2}\n{"n":3}\n'
    wrong = headrace("stream", "unfollow", "mine", "--json", "--store", copy)
    assert wrong.error["code"] == "refused"


def test_follow_goes_on_until_it_is_terminated(place: Path) -> None:
    with (
        served(place / "source") as node,
        hr.open(place / "copy") as store,
        service("stream", "follow", filled(node), "s", "--json", "--store", place / "copy") as process,
    ):
        until(lambda: "s" in store.streams() and store.stream("s").next_index == 3)
        node.ask.done("POST", "/streams/s", [{"n": 3}])
        until(lambda: store.stream("s").next_index == 4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["entries"] == 4


def test_a_url_that_is_none_and_a_node_that_is_away(place: Path) -> None:
    words = ("s", "--once", "--json", "--store", place / "copy")
    assert headrace("stream", "follow", "there", *words).error["code"] == "bad_settings"
    with served(place / "source") as node:
        url = filled(node)
    away = headrace("stream", "follow", url, *words)
    assert json.loads(away.err.splitlines()[-1])["error"]["code"] == "cannot_connect"


def test_a_node_keeps_copies_and_says_how_they_are_doing(place: Path) -> None:
    with served(place / "source") as there, served(place / "here") as here:
        url = filled(there)

        async def follow() -> KeptReplicas:
            kept = KeptReplicas(here.node)
            kept.follow(NodeLine(url), "s", "theirs")
            kept.follow(NodeLine(url), "later")
            return kept

        kept = asyncio.run_coroutine_threadsafe(follow(), here.loop).result(60)
        until(lambda: here.node.replicas["theirs"].lag == 0)
        info = here.ask.done("GET", "/streams/theirs/info")
        assert info["next"] == 3
        assert info["copy_of"] == {"url": url, "name": "s", "phase": "following", "lag": 0, "error": ""}
        there.ask.done("PUT", "/streams/s", {"fields": {"n": "int64", "more": "int64"}})
        there.ask.done("POST", "/streams/s", [{"n": 3, "more": 4}])
        until(lambda: last_row(here, "theirs").get("more") == 4)
        filled(there, "later")
        until(lambda: here.node.replicas["later"].lag == 0)
        metrics = here.ask("GET", "/metrics").body.decode()
        assert 'headrace_replica_lag{stream="theirs"} 0.0' in metrics
        assert 'headrace_replica_following{stream="theirs"} 1.0' in metrics
        assert 'headrace_copies{stream="s"} 1.0' in there.ask("GET", "/metrics").body.decode()
        asyncio.run_coroutine_threadsafe(kept.stop(), here.loop).result(60)
        assert here.node.replicas["theirs"].phase == "ended"


def test_what_is_not_there_cannot_be_unfollowed(place: Path) -> None:
    hr.open(place / "copy").close()
    outcome = headrace("stream", "unfollow", "nothing", "--store", place / "copy")
    assert (outcome.code, "see `headrace stream ls`" in outcome.err) == (1, True)
