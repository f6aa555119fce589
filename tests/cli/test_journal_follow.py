"""`headrace journal follow`, `unfollow` and `drop`, and a node that keeps copies of others' journals."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from headrace.cli.kept_replicas import KeptReplicas
from headrace.cli.settings_sources import from_file
from headrace.client.node_line import NodeLine
from headrace.journal.reading import read_state
from headrace.kernel.errors import BadSettings
from server.http_node import Daemon, Served, served
from waiting import until

from .running import Outcome, headrace, service


def filled(node: Served) -> str:
    node.ask.done("PUT", "/journals/pages")
    for resource in "abc":
        node.ask.done("POST", "/journals/pages/put", {"resource": resource})
    node.ask.done("POST", "/journals/pages/set", {"key": "visits", "value": 41})
    return f"http://127.0.0.1:{node.ask.port}"


def test_follow_once_look_at_it_and_unfollow(place: Path) -> None:
    copy = place / "copy"

    def journal(verb: str, *words: str) -> Outcome:
        return headrace("journal", verb, *words, "--store", copy)

    with served(place / "source") as node:
        url = filled(node)
        done = journal("follow", url, "pages", "--as", "mine", "--once", "--json")
        assert done.code == 0, done
        assert (done.json["name"], done.json["entries"], done.json["next_index"]) == ("mine", 4, 4)
        again = journal("follow", url, "pages", "--as", "mine", "--once")
        assert again.text == "mine ends at index 4: 0 events, 0 bytes came\n"
    for verb, words in {
        "put": ["d"],
        "next": [],
        "done": ["a"],
        "set": ["visits", "42"],
        "delete": ["visits"],
        "redrive": [],
    }.items():
        refused = journal(verb, "mine", *words, "--json")
        assert refused.error["code"] == "is_replica", (verb, refused)
        assert "headrace journal unfollow" in refused.error["message"]
    assert journal("get", "mine", "visits", "--touch").text == "41\n"  # it has no time to live
    assert journal("range", "mine").text == "visits\t41\n"
    assert journal("range", "mine", "--match", "^v").text == "visits\t41\n"
    rows = [json.loads(line) for line in journal("ls", "mine", "--json").lines]
    assert [row["resource"] for row in rows] == ["a", "b", "c"]
    assert journal("ls", "--json").json["journals"][0]["pending"] == 3
    assert journal("stats", "mine", "--json").json["copy_of"] == f"'pages' at {url}"
    assert journal("watch", "mine", "--from", "start", "--count", "1", "--json").json["key"] == "a"
    assert journal("unfollow", "mine", "--json").json["url"] == url
    assert journal("next", "mine", "--json").json["resource"] == "a"
    assert journal("unfollow", "mine", "--json").error["code"] == "refused"


def test_a_journal_is_dropped_if_that_is_meant(place: Path) -> None:
    headrace("journal", "put", "pages", "a", "--store", place)
    words = ("drop", "pages", "--json", "--store", place)
    assert "--yes" in headrace("journal", *words).error["message"]
    assert headrace("journal", *words, "--yes").json["name"] == "pages"
    assert headrace("journal", *words, "--yes").error["code"] == "not_found"
    assert headrace("journal", "ls", "--json", "--store", place).json["journals"] == []


def test_follow_goes_on_until_it_is_terminated(place: Path) -> None:
    log = place / "copy" / "journals" / "pages" / "log"
    with (
        served(place / "source") as node,
        service("journal", "follow", filled(node), "pages", "--json", "--store", place / "copy") as process,
    ):
        until((log / "positions" / "state").exists)
        node.ask.done("POST", "/journals/pages/put", {"resource": "d"})
        until(lambda: len(read_state(log.parent).jobs) == 4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["entries"] == 5


def test_a_node_keeps_copies_of_journals_and_says_how_they_are_doing(place: Path) -> None:
    with served(place / "source") as there, served(place / "here") as here:
        url = filled(there)

        async def follow() -> KeptReplicas:
            kept = KeptReplicas(here.node)
            kept.follow(NodeLine(url), "pages", "theirs", "journals")
            kept.follow(NodeLine(url), "later", kind="journals")
            return kept

        kept = asyncio.run_coroutine_threadsafe(follow(), here.loop).result(60)
        until(lambda: here.node.journal_replicas["theirs"].lag == 0)
        there.ask.done("PUT", "/journals/later")
        until(lambda: here.node.journal_replicas["later"].lag == 0)
        metrics = here.ask("GET", "/metrics").body.decode()
        assert 'headrace_journal_replica_lag{journal="theirs"} 0.0' in metrics
        assert 'headrace_journal_replica_following{journal="theirs"} 1.0' in metrics
        assert 'headrace_journal_copies{journal="pages"} 1.0' in there.ask("GET", "/metrics").body.decode()
        asyncio.run_coroutine_threadsafe(kept.stop(), here.loop).result(60)
        assert here.node.journal_replicas["theirs"].phase == "ended"


def test_the_settings_of_a_node_name_the_journals_to_follow(place: Path) -> None:
    place.mkdir(exist_ok=True)
    config, daemons = place / "headrace.toml", list[Daemon]()
    try:
        source = Daemon(place / "there")
        daemons.append(source)
        source.ask.done("PUT", "/journals/pages")
        source.ask.done("POST", "/journals/pages/put", {"resource": "a"})
        config.write_text(
            f'[[follow]]\nurl = "http://127.0.0.1:{source.port}"\njournal = "pages"\nname = "copy"\n'
        )
        daemons.append(Daemon(place / "here", "--config", str(config)))
        until((place / "here" / "journals" / "copy" / "log" / "positions" / "state").exists)
        assert len(read_state(place / "here" / "journals" / "copy").jobs) == 1
    finally:
        for each in daemons:
            each.kill()


@pytest.mark.parametrize("named", ["", 'stream = "s"\njournal = "j"\n'])
def test_either_a_stream_or_a_journal_is_followed(place: Path, named: str) -> None:
    place.mkdir(exist_ok=True)
    config = place / "headrace.toml"
    config.write_text(f'[[follow]]\nurl = "http://there:7400"\n{named}')
    with pytest.raises(BadSettings, match=r"which `stream` or which `journal`"):
        from_file(config)
