"""Streams over HTTP: first a tour, in the order in which one would try it; then what must always hold."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr

from .http_node import ARROW, Served, ipc, served
from .http_rows import SCHEMA, as_json, rows

ORDERS: dict[str, Any] = {"fields": {"at": "int64", "who": "string"}, "order_by": "at"}


@dataclass
class New:
    w: str


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store") as one:
        yield one


@pytest.fixture
def orders(node: Served) -> Served:
    """Three orders, at 10, 20 and 30."""
    node.ask.done("PUT", "/streams/orders", ORDERS)
    people = [{"at": at, "who": who} for at, who in ((10, "ada"), (20, "bob"), (30, "cy"))]
    node.ask.done("POST", "/streams/orders", people)
    return node


def indexes(node: Served, query: str) -> list[int]:
    return [row["_index"] for row in node.ask.rows(f"/streams/orders?{query}")]


# --- the tour


def test_put_makes_a_stream_and_says_whether_it_was_made_now(node: Served) -> None:
    assert node.ask("PUT", "/streams/orders", ORDERS).status == 201
    again = node.ask("PUT", "/streams/orders", ORDERS)
    assert (again.status, again.json) == (200, {"name": "orders", "created": False})
    assert node.ask.done("GET", "/streams") == {"streams": ["orders"]}


def test_post_takes_json_lines_and_answers_their_indexes(node: Served) -> None:
    node.ask.done("PUT", "/streams/orders", ORDERS)
    answer = node.ask.done("POST", "/streams/orders", b'{"at": 10, "who": "ada"}\n{"at": 20}\n')
    assert answer == {"first": 0, "next": 2, "duplicates": [], "repeated": False}
    answer = node.ask.done("POST", "/streams/orders", b'\n{"at": 20, "who": "bob"}')
    assert (answer["first"], answer["next"]) == (2, 3)


def test_get_reads_from_the_start_with_indexes(orders: Served) -> None:
    answer = orders.ask("GET", "/streams/orders")
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert answer.lines[:2] == [
        {"_index": 0, "at": 10, "who": "ada"},
        {"_index": 1, "at": 20, "who": "bob"},
    ]


def test_reading_begins_at_an_index_a_key_the_start_or_the_end(orders: Served) -> None:
    assert indexes(orders, "from=start") == [0, 1, 2]
    assert indexes(orders, "from=1") == [1, 2]
    assert indexes(orders, "from=end") == []
    assert indexes(orders, "from=7") == []
    assert indexes(orders, "key=11") == [1, 2]
    assert indexes(orders, "key=20") == [1, 2]


def test_reading_ends_before_a_key_or_after_so_many(orders: Served) -> None:
    assert indexes(orders, "until=30") == [0, 1]
    assert indexes(orders, "until=end") == [0, 1, 2]
    assert indexes(orders, "count=2") == [0, 1]
    assert indexes(orders, "count=0") == []
    assert indexes(orders, "from=1&count=1") == [1]
    assert indexes(orders, "key=11&until=21") == [1]


def test_columns_are_chosen_and_in_the_order_that_was_asked_for(orders: Served) -> None:
    assert orders.ask.rows("/streams/orders?columns=who&count=1") == [{"_index": 0, "who": "ada"}]
    (row,) = orders.ask.rows("/streams/orders?columns=who,at&count=1")
    assert list(row) == ["_index", "who", "at"]
    assert orders.ask.rows("/streams/orders?columns=who&until=20") == [{"_index": 0, "who": "ada"}]


def test_arrow_goes_in_and_comes_out(node: Served) -> None:
    table = pa.table({"at": [1, 2, 3], "who": ["ada", None, "cy"]})
    made = node.ask("PUT", "/streams/orders", ipc(table.schema.empty_table()), {"Content-Type": ARROW})
    assert made.status == 201
    assert node.ask.done("POST", "/streams/orders", table)["next"] == 3
    answer = node.ask("GET", "/streams/orders?format=arrow")
    assert answer.headers["Content-Type"] == ARROW
    assert answer.table == table
    assert node.ask("GET", "/streams/orders", headers={"Accept": ARROW}).table == table
    reader = pa.ipc.open_stream(node.ask("GET", "/streams/orders?format=arrow&from=1").body)
    batch, notes = reader.read_next_batch_with_custom_metadata()
    assert (batch.num_rows, notes[b"index"]) == (2, b"1")


def test_arrow_of_nothing_has_the_schema_of_what_was_asked_for(orders: Served) -> None:
    empty = orders.ask("GET", "/streams/orders?format=arrow&from=end").table
    assert (empty.num_rows, empty.column_names) == (0, ["at", "who"])
    empty = orders.ask("GET", "/streams/orders?format=arrow&from=end&columns=who").table
    assert (empty.num_rows, empty.column_names) == (0, ["who"])


def test_a_follower_gets_what_is_there_and_then_what_comes(orders: Served) -> None:
    follower = orders.ask.following("/streams/orders?from=2&follow=true")
    assert follower.next() == {"_index": 2, "at": 30, "who": "cy"}
    for at in (40, 50):
        orders.ask.done("POST", "/streams/orders", [{"at": at}])
        found = follower.next()
        assert found is not None
        assert found["at"] == at
    follower.close()


def test_a_follower_ends_at_its_count_or_its_key(orders: Served) -> None:
    counting = orders.ask.following("/streams/orders?from=2&follow=true&count=2")
    ending = orders.ask.following("/streams/orders?key=30&follow=true&until=40")
    orders.ask.done("POST", "/streams/orders", [{"at": 39}, {"at": 40}])
    assert [row["at"] for row in counting.rest()] == [30, 39]
    assert [row["at"] for row in ending.rest()] == [30, 39]


def test_moves_of_head_are_told_between_the_entries(node: Served) -> None:
    orders = node.store.stream("orders", pa.schema([("at", pa.int64())]), order_by="at")
    with orders.publisher() as publisher:
        publisher.head(5)
        publisher.publish({"at": 10})
        publisher.head(20)
    assert node.ask.rows("/streams/orders") == [
        {"_head": 5, "_index": 0},
        {"_index": 0, "at": 10},
        {"_head": 20, "_index": 1},
    ]
    reader = pa.ipc.open_stream(node.ask("GET", "/streams/orders?format=arrow&from=0").body)
    told = []
    while True:
        try:
            batch, notes = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            break
        told.append((batch.num_rows, notes.get(b"index"), notes.get(b"head")))
    assert told[-2:] == [(1, b"0", None), (0, b"1", b"20")]


def test_head_is_moved_and_followers_are_told(orders: Served) -> None:
    follower = orders.ask.following("/streams/orders?from=end&follow=true")
    assert orders.ask.done("POST", "/streams/orders/head", {"key": 40}) == {"head": 40}
    assert follower.next() == {"_head": 40, "_index": 3}
    answer = orders.ask("POST", "/streams/orders", [{"at": 39}])
    assert (answer.status, answer.error) == (400, "key_order")
    orders.ask.done("POST", "/streams/orders", [{"at": 40}])
    assert (follower.next() or {})["at"] == 40
    follower.close()


def test_a_stream_gains_fields_and_its_readers_come_again(orders: Served) -> None:
    follower = orders.ask.following("/streams/orders?from=end&follow=true")
    grown = {"fields": {**ORDERS["fields"], "note": "string"}, "order_by": "at"}
    assert orders.ask.done("PUT", "/streams/orders", grown) == {"name": "orders", "created": False}
    assert follower.rest() == []
    orders.ask.done("POST", "/streams/orders", [{"at": 40, "note": "new"}])
    assert orders.ask.rows("/streams/orders?from=2&columns=at,note") == [
        {"_index": 2, "at": 30, "note": None},
        {"_index": 3, "at": 40, "note": "new"},
    ]
    fields = [field["name"] for field in orders.ask.done("GET", "/streams/orders/info")["fields"]]
    assert fields == ["at", "who", "note"]


def test_info_tells_the_fields_and_how_far_the_stream_reaches(orders: Served) -> None:
    info = orders.ask.done("GET", "/streams/orders/info")
    assert (info["name"], info["order_by"]) == ("orders", "at")
    assert [field["name"] for field in info["fields"]] == ["at", "who"]
    assert (info["first"], info["next"], info["durable"]) == (0, 3, 3)


def test_those_who_watch_over_a_node_are_told(orders: Served) -> None:
    assert orders.ask.done("GET", "/livez") == {"alive": True}
    assert orders.ask.done("GET", "/readyz") == {"ready": True}
    orders.ask.done("PUT", "/journals/pages")
    orders.ask.done("POST", "/journals/pages/put", {"resource": "a", "priority": 3})
    text = orders.ask("GET", "/metrics").body.decode()
    for line in (
        'headrace_entries_total{stream="orders"} 3.0',
        'headrace_next_index{stream="orders"} 3.0',
        'headrace_followers{stream="orders"} 0.0',
        'headrace_jobs_pending{journal="pages",priority="3"} 1.0',
    ):
        assert line in text.splitlines()


# --- what must always hold


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(rows(), min_size=1, max_size=5), st.booleans())
def test_what_is_published_is_what_an_embedded_listener_reads(
    node: Served, given_rows: list[dict[str, Any]], as_arrow: bool
) -> None:
    schema = ipc(SCHEMA.empty_table())
    assert node.ask("PUT", "/streams/many", schema, {"Content-Type": ARROW}).status in (200, 201)
    body: Any = [as_json(row) for row in given_rows]
    if as_arrow:
        body = pa.Table.from_pylist(given_rows, SCHEMA)
    answer = node.ask.done("POST", "/streams/many", body)
    where = f"from={answer['first']}&count={len(given_rows)}"
    many = node.store.stream("many")
    read = [entry.value for entry in many.listen(answer["first"], until=answer["next"])]
    many.close()
    assert pa.Table.from_pylist(read, SCHEMA).equals(pa.Table.from_pylist(given_rows, SCHEMA))
    assert node.ask("GET", f"/streams/many?format=arrow&{where}").table.to_pylist() == read
    # what is read as JSON can be published again, and is the same
    shown = [
        {key: row[key] for key in row if key != "_index"} for row in node.ask.rows(f"/streams/many?{where}")
    ]
    again = node.ask.done("POST", "/streams/many", shown)
    assert node.ask.rows(f"/streams/many?from={again['first']}") == [
        {"_index": index, **row} for index, row in enumerate(shown, again["first"])
    ]


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 13), st.integers(0, 13), st.integers(0, 13))
def test_any_stretch_is_the_slice_that_a_list_would_give(
    node: Served, start: int, stop: int, count: int
) -> None:
    if node.ask("PUT", "/streams/plain", {"fields": {"n": "int64"}}).status == 201:
        for first in (0, 1, 4):  # several batches, so that stretches begin and end inside them
            node.ask.done(
                "POST", "/streams/plain", [{"n": n} for n in range(first * 2, first * 2 + first + 1)]
            )
    everything = [row["n"] for row in node.ask.rows("/streams/plain")]
    read = node.ask.rows(f"/streams/plain?from={start}&until={stop}&count={count}")
    assert [row["n"] for row in read] == everything[start:stop][:count]
    assert [row["_index"] for row in read] == list(range(len(everything)))[start:stop][:count]


def test_a_batch_that_is_sent_again_is_answered_not_published_again(node: Served) -> None:
    node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})

    def send(producer: str, sequence: int, n: int) -> Any:
        headers = {"Headrace-Producer": producer, "Headrace-Sequence": str(sequence)}
        return node.ask.done("POST", "/streams/s", [{"n": n}], headers)

    first = send("a", 1, 10)
    assert send("a", 1, 10) == {**first, "repeated": True}
    assert send("b", 1, 20)["repeated"] is False  # each producer counts for itself
    assert send("a", 2, 30)["repeated"] is False
    assert send("a", 1, 10)["repeated"] is True  # an older one, too
    assert send("c", (1 << 63) - 1, 40)["repeated"] is False  # nanoseconds are fine, too
    assert [row["n"] for row in node.ask.rows("/streams/s")] == [10, 20, 30, 40]


def test_a_repeated_batch_is_recognised_by_the_next_node(place: Path) -> None:
    headers = {"Headrace-Producer": "a", "Headrace-Sequence": "7"}
    with served(place / "store") as node:
        node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
        first = node.ask.done("POST", "/streams/s", [{"n": 1}], headers)
    with served(place / "store") as node:
        assert node.ask.done("POST", "/streams/s", [{"n": 1}], headers) == {**first, "repeated": True}
        assert len(node.ask.rows("/streams/s")) == 1


def test_unique_ids_are_kept_and_the_answer_says_which_were_left_out(node: Served) -> None:
    node.ask.done("PUT", "/streams/s", {"fields": {"id": "string"}, "unique_by": "id"})
    answer = node.ask.done("POST", "/streams/s", [{"id": "a"}, {"id": "b"}, {"id": "a"}])
    assert (answer["next"], answer["duplicates"]) == (2, [2])
    headers = {"Headrace-Producer": "p", "Headrace-Sequence": "1"}
    answer = node.ask.done("POST", "/streams/s", [{"id": "b"}, {"id": "a"}], headers)
    assert (answer["first"], answer["next"], answer["duplicates"]) == (2, 2, [0, 1])
    assert [row["id"] for row in node.ask.rows("/streams/s")] == ["a", "b"]


def test_publishers_at_the_same_time_get_an_exact_account_and_share_syncs(node: Served) -> None:
    node.ask.done("PUT", "/streams/s", {"fields": {"who": "int64", "n": "int64"}})
    each, threads = 25, 16
    begin = threading.Barrier(threads)

    def publish(who: int) -> dict[int, tuple[int, int]]:
        ask, told = node.ask.keeping(), {}
        begin.wait(30)
        for n in range(each):
            told[ask.done("POST", "/streams/s", [{"who": who, "n": n}])["first"]] = (who, n)
        assert ask.kept is not None
        ask.kept.close()
        return told

    with ThreadPoolExecutor(threads) as pool:
        told = {index: what for part in pool.map(publish, range(threads)) for index, what in part.items()}
    stored = {row["_index"]: (row["who"], row["n"]) for row in node.ask.rows("/streams/s")}
    assert stored == told
    assert sorted(stored) == list(range(each * threads))
    per_publisher = Counter(who for who, _ in stored.values())
    assert set(per_publisher.values()) == {each}
    assert node.desk.published_entries == each * threads
    assert 0 < node.desk.sync_times.count < each * threads


HOLDS = """
import sys, headrace as hr
with hr.open(sys.argv[1]) as store, store.stream("s").publisher():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_stream_that_another_process_publishes_to_is_refused_until_that_lets_go(place: Path) -> None:
    with served(place / "store") as node:
        node.ask.done("PUT", "/streams/s", {"fields": {"n": "int64"}})
        command = [sys.executable, "-c", HOLDS, str(place / "store")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            answer = node.ask("POST", "/streams/s", [{"n": 1}])
            assert (answer.status, answer.error) == (409, "publisher_taken")
            assert node.ask.rows("/streams/s") == []  # reading needs no lock
            other.communicate(timeout=30)
        assert node.ask.done("POST", "/streams/s", [{"n": 1}])["first"] == 0
        with hr.open(place / "store") as store, pytest.raises(hr.Refused, match="'s'"):
            store.stream("s").publisher()
    with hr.open(place / "store") as store, store.stream("s").publisher():
        pass  # a node that has stopped holds nothing


@pytest.mark.parametrize("way", ["PUT", "made by its terms"])
def test_a_stream_that_somebody_else_dropped_can_be_made_anew(node: Served, way: str) -> None:
    node.ask.done("PUT", "/streams/s", {"fields": {"v": "int64"}})
    assert node.ask.rows("/streams/s") == []  # so that it has a desk, which holds no lock
    node.store.drop("s")
    assert node.ask("GET", "/metrics").status == 200
    wanted = {"fields": {"w": "string"}}
    if way == "PUT":
        assert node.ask("PUT", "/streams/s", wanted).status == 201
    else:
        with hr.connect(f"http://127.0.0.1:{node.ask.port}") as store:
            store.stream("s", New)
    node.ask.done("POST", "/streams/s", [{"w": "new"}])
    assert node.ask.rows("/streams/s") == [{"_index": 0, "w": "new"}]
    assert [field["name"] for field in node.ask.done("GET", "/streams/s/info")["fields"]] == ["w"]
