"""`headrace stream info`, `verify` and `drop`."""

from __future__ import annotations

from dataclasses import make_dataclass
from datetime import UTC, datetime

import pytest
from tests.cli.streaming import Streams

import headrace as hr


def test_info_tells_what_a_stream_is(streams: Streams) -> None:
    streams.orders()
    found = streams("info", "orders", "--json").json
    assert (found["name"], found["entries"], found["first_index"], found["last_index"]) == ("orders", 3, 0, 2)
    assert found["head"] == "2024-07-01T12:00:02.000000Z"
    assert [one["name"] for one in found["schema"]] == ["at", "user", "amount"]
    assert found["unique_by"] is None
    shown = streams("info", "orders").text
    for word in ("HEAD", "order by", "durability", "user:string not null", "first index", "segments"):
        assert word in shown


def test_head_is_further_on_than_the_last_entry_if_it_was_moved(streams: Streams) -> None:
    streams.orders()
    with hr.open(streams.path) as store, store.stream("orders").publisher() as publisher:
        publisher.head(datetime(2025, 1, 1, tzinfo=UTC))
    assert streams("info", "orders", "--json").json["head"] == "2025-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(("kind", "key"), [("int", -7), ("float", 0.5), ("uint64", 7)])
def test_head_is_shown_as_the_type_it_has(streams: Streams, kind: str, key: float) -> None:
    streams("create", "a", "--field", f"k:{kind}", "--order-by", "k")
    assert streams("info", "a", "--json").json["head"] is None
    with hr.open(streams.path) as store, store.stream("a").publisher() as publisher:
        publisher.head(key)
    assert streams("info", "a", "--json").json["head"] == key


def test_info_tells_unions_and_unique_ids(streams: Streams) -> None:
    streams.shapes()
    assert streams("info", "shapes", "--json").json["variants"] == ["Circle", "Square"]
    assert "Circle, Square" in streams("info", "shapes").text
    with hr.open(streams.path) as store:
        inside = make_dataclass("Inside", [("one", int)]) | make_dataclass("Other", [("two", int)])
        store.stream("nested", make_dataclass("A", [("of", inside)]) | make_dataclass("B", [("n", int)]))
    assert streams("info", "nested", "--json").json["variants"] == ["A", "B"]
    streams("create", "ids", "--field", "id:str", "--unique-by", "id", "--unique-window", "5")
    streams("publish", "ids", given=b'{"id": "a"}\n')
    assert "id among the last 5 entries, " in streams("info", "ids").text
    assert streams("info", "ids", "--json").json["foreign"] == []


def test_verify_finds_what_is_damaged(streams: Streams) -> None:
    streams.damaged()
    checked = streams.run("verify", "torn", "--json")
    assert checked.code == 3
    assert checked.json["ok"] is False
    assert checked.json["lost"] == [[2, 4]]
    shown = streams.run("verify", "torn")
    assert shown.code == 3
    assert "lost: entries 2 to 3" in shown.text
    streams.orders()
    assert streams("verify", "orders", "--json").json["ok"] is True


def test_drop_is_refused_unless_it_is_meant(streams: Streams) -> None:
    streams.orders()
    assert "say --yes" in streams.refused("drop", "orders")
    assert len(streams.rows("orders")) == 3
    assert streams("drop", "orders", "--yes", "--json").json["entries"] == 3
    assert streams.refused("cat", "orders").startswith("error (not_found): ")


@pytest.mark.parametrize(("answer", "left"), [(b"y\n", 0), (b"n\n", 1)])
def test_on_a_terminal_drop_asks(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, answer: bytes, left: int
) -> None:
    streams.orders()
    monkeypatch.setattr("headrace.cli.stream_care._on_terminal", lambda: True)
    done = streams.run("drop", "orders", given=answer)
    assert "Remove stream 'orders' with 3 entries for ever?" in done.err + done.text
    assert len(streams("ls", "--json").json["streams"]) == left
    assert done.code == (130 if left else 0)
