"""A tour of `headrace stream`: from an empty directory to an answer in SQL."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.running import headrace
from tests.cli.streaming import ORDERS, Streams, lines_of
from typer.main import get_command

from headrace.cli.app import app


def test_a_file_becomes_a_stream_that_can_be_read_queried_and_exported(
    streams: Streams, tmp_path: Path
) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_bytes(lines_of(ORDERS))

    made = streams("create", "orders", "--like", file, "--order-by", "at")
    wanted = "created stream orders: at:timestamp[us, tz=UTC] not null, user:string, amount:double"
    assert made.text == f"{wanted}, ordered by at\n"

    published = streams("publish", "orders", file)
    assert published.text.startswith("published 3 entries from index 0 on, ")

    assert streams.rows("orders") == ORDERS
    assert streams.rows("orders", "--from-key", "2024-07-01T12:00:01Z", "--columns", "user") == [
        {"user": "bob"},
        {"user": "ann"},
    ]
    last = streams("tail", "orders", "-n", "1", "--columns", "user", "--index")
    assert last.text == '{"index":2,"user":"ann"}\n'

    answer = streams("query", "orders", "SELECT user, count(*) AS n FROM orders GROUP BY user ORDER BY user")
    assert answer.lines == ['{"user":"ann","n":2}', '{"user":"bob","n":1}']

    assert "whole: 3 entries" in streams("verify", "orders").text
    exported = streams("export", "orders", tmp_path / "orders.parquet")
    assert exported.text.startswith("exported 3 entries to ")

    assert streams("drop", "orders", "--yes").text.startswith("dropped stream 'orders' with 3 entries")
    assert streams("ls", "--json").json["streams"] == []


def test_the_store_is_found_by_option_or_environment(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.orders()
    monkeypatch.setenv("HEADRACE_STORE", str(streams.path))
    assert [row["name"] for row in headrace("stream", "ls", "--json").json["streams"]] == ["orders"]
    monkeypatch.delenv("HEADRACE_STORE")
    monkeypatch.chdir(tmp_path)
    missing = headrace("stream", "ls")
    assert missing.code == 1
    assert missing.err.startswith("error (not_found): there is no store at data: ")
    shutil.move(streams.path, tmp_path / "data")
    assert "orders" in headrace("stream", "ls").text


def test_ls_says_how_much_is_in_each_stream(streams: Streams) -> None:
    streams.orders()
    streams("create", "empty")
    empty, orders = streams("ls", "--json").json["streams"]
    size = streams("info", "orders", "--json").json["bytes"]
    assert orders == {"name": "orders", "entries": 3, "bytes": size, "order_by": "at", "last_index": 2}
    assert (empty["name"], empty["entries"], empty["order_by"]) == ("empty", 0, "index")
    assert empty["last_index"] is None
    shown = streams("ls").text
    assert "last index" in shown
    assert "orders" in shown


def test_ls_of_an_empty_store_says_what_to_do(streams: Streams) -> None:
    streams("create", "one")
    streams("drop", "one", "--yes")
    told = streams("ls")
    assert told.out == b""
    assert "headrace stream create" in told.err


def test_ls_goes_on_behind_a_stream_that_cannot_be_opened(streams: Streams) -> None:
    streams.orders()
    streams("create", "broken")
    (streams.path / "streams" / "broken" / "meta.json").write_text("{")
    listed = streams.run("ls", "--json")
    assert listed.code == 3
    assert [row["name"] for row in listed.json["streams"]] == ["orders"]
    assert "'broken' cannot be opened" in json.loads(listed.err)["note"]


def test_looking_never_makes_a_store(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (empty, tmp_path / "none"):
        for words in (("ls",), ("cat", "x"), ("publish", "x"), ("drop", "x", "--yes")):
            told = Streams(path).refused(*words)
            assert told.startswith("error (not_found): there is no store at ")
    assert list(empty.iterdir()) == []
    assert not (tmp_path / "none").exists()


def test_what_is_not_there_is_named_with_what_to_type_next(streams: Streams) -> None:
    streams.orders()
    for words in (
        ("cat", "no"),
        ("tail", "no"),
        ("info", "no"),
        ("query", "no", "select 1"),
        ("publish", "no"),
    ):
        told = streams.refused(*words)
        assert told.startswith("error (not_found): there is no stream 'no' in ")
        assert "headrace stream create" in told
    assert streams.refused("cat", "../x").startswith("error (bad_name): ")


def test_the_commands_of_the_noun_stream_are_all_there() -> None:
    wanted = ["ls", "create", "publish", "cat", "tail", "info", "verify", "drop", "export", "query"]
    wanted += ["follow", "unfollow"]
    nouns = get_command(app)
    assert list(nouns.commands["stream"].commands) == wanted  # type: ignore[attr-defined]
