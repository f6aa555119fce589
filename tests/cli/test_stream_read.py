"""`headrace stream cat` and `tail`: which entries, which columns, in which form."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from tests.cli.streaming import ORDERS, Streams, lines_of

import headrace as hr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--from", "1"), [1, 2]),
        (("--from", "start"), [0, 1, 2]),
        (("--from", "end"), []),
        (("--from", "99"), []),
        (("--until", "2"), [0, 1]),
        (("--from", "1", "--until", "2"), [1]),
        (("--count", "2"), [0, 1]),
        (("--count", "0"), []),
        (("--from", "1", "--count", "1"), [1]),
        (("--from-key", "2024-07-01T12:00:01Z"), [1, 2]),
        (("--from-key", "2024-07-01T14:00:00.5+02:00"), [1, 2]),
        (("--until-key", "2024-07-01T12:00:01Z"), [0]),
        (("--from-key", "2024-07-01T12:00:01Z", "--until-key", "2024-07-01T12:00:02Z"), [1]),
        (("--until-key", "2024-07-01T12:00:01Z", "--columns", "user"), [0]),
        (("--from-key", "2025-01-01"), []),
    ],
)
def test_a_range_is_chosen_by_index_key_and_count(
    streams: Streams, words: tuple[str, ...], wanted: list[int]
) -> None:
    streams.orders()
    users = [row["user"] for row in streams.rows("orders", *words)]
    assert users == [ORDERS[at]["user"] for at in wanted]


def test_a_time_without_a_zone_is_utc_and_said_to_be(streams: Streams) -> None:
    streams.orders()
    shown = streams("cat", "orders", "--from-key", "2024-07-01T12:00:02")
    assert len(shown.lines) == 1
    assert "has no time zone: it is taken as UTC (2024-07-01T12:00:02+00:00)" in shown.err
    assert streams("cat", "orders", "--from-key", "2024-07-01T12:00:02Z").err == ""


@pytest.mark.parametrize(
    ("kind", "keys", "start", "wanted"),
    [
        ("int", [-5, 0, 5], "0", [0, 5]),
        ("float", [-0.5, 0.25, 1.0], "0.2", [0.25, 1.0]),
        ("uint64", [1, 2, 1 << 63], "3", [1 << 63]),
        ("timestamp[us]", ["2024-01-01T00:00:00.000000", "2024-01-02T00:00:00.000000"], "2024-01-02", [1]),
        ("timestamp[s]", ["2024-01-01T00:00:00", "2024-01-01T00:00:01"], "2024-01-01T00:00:00.5", [1]),
    ],
)  # fmt: skip
def test_keys_are_read_by_the_type_of_the_order_key(
    streams: Streams, kind: str, keys: list[object], start: str, wanted: list[object]
) -> None:
    streams("create", "a", "--field", f"k:{kind}", "--order-by", "k")
    streams("publish", "a", given=lines_of({"k": key} for key in keys))
    shown = [row["k"] for row in streams.rows("a", "--from-key", start)]
    assert shown == ([keys[at] for at in wanted] if isinstance(keys[0], str) else wanted)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("kind", "key", "told"),
    [
        ("int", "x", "'x' is not a whole number: stream 'a' is ordered by 'k' (int64)"),
        ("datetime", "5", "is not a time in ISO 8601"),
        ("float", "", "is not a number"),
        ("timestamp[us]", "2024-01-01T00:00:00Z", "has a time zone"),
    ],
)
def test_what_is_no_key_is_one_line(streams: Streams, kind: str, key: str, told: str) -> None:
    streams("create", "a", "--field", f"k:{kind}", "--order-by", "k")
    said = streams.refused("cat", "a", "--from-key", key)
    assert said.startswith("error (key_order): ")
    assert told in said


def test_a_stream_without_a_key_field_has_the_index_as_key(streams: Streams) -> None:
    streams("publish", "a", "--create", given=lines_of({"n": n} for n in range(5)))
    assert streams.rows("a", "--from-key", "1", "--until-key", "3") == [{"n": 1}, {"n": 2}]


def test_wrong_ranges_are_wrong_usage(streams: Streams) -> None:
    streams.orders()
    for words in (
        ("--from", "x"),
        ("--from", "-1"),
        ("--from", "1", "--from-key", "2024-01-01"),
        ("--until", "1", "--until-key", "2024-01-01"),
        ("--columns", ","),
        ("--columns", "user,user"),
        ("--json", "--format", "table"),
        ("--format", "lines"),
    ):
        streams.refused("cat", "orders", *words, code=2)
    assert "has no field 'who'" in streams.refused("cat", "orders", "--columns", "who")


def test_a_table_shows_indexes_and_the_chosen_columns(streams: Streams) -> None:
    streams.orders()
    shown = streams("cat", "orders", "--format", "table", "--columns", "amount,user").lines
    cells = [line.split() for line in shown if line.strip()]
    assert cells[0] == ["index", "amount", "user"]
    assert cells[2:] == [["0", "1.5", "ann"], ["1", "2.0", "bob"], ["2", "null", "ann"]]


def test_arrow_is_the_stream_itself(streams: Streams) -> None:
    streams.orders()
    table = pa.ipc.open_stream(streams("cat", "orders", "--format", "arrow").out).read_all()
    with hr.open(streams.path) as store:
        stored = pa.Table.from_batches([batch.records for batch in store.stream("orders").listen_batches()])
    assert table.equals(stored)
    numbered = streams("tail", "orders", "-n", "1", "--format", "arrow", "--index", "--columns", "user").out
    assert pa.ipc.open_stream(numbered).read_all().to_pylist() == [{"index": 2, "user": "ann"}]
    empty = pa.ipc.open_stream(streams("cat", "orders", "--count", "0", "--format", "arrow").out)
    assert empty.schema == stored.schema
    assert empty.read_all().num_rows == 0


def test_a_union_shows_its_class_and_what_it_has(streams: Streams) -> None:
    streams.shapes()
    assert streams.rows("shapes") == [
        {"_type": "Circle", "radius": 1.0, "label": "one"},
        {"_type": "Square", "side": 2.0},
        {"_type": "Circle", "radius": 3.0},
    ]
    copy = streams("cat", "shapes").out
    streams("publish", "shapes", given=copy)
    assert streams("cat", "shapes", "--from", "3").out == copy


def test_tail_shows_the_last(streams: Streams) -> None:
    streams("publish", "a", "--create", given=lines_of({"n": n} for n in range(30)))
    assert [line[5:-1] for line in streams("tail", "a").lines] == [str(n) for n in range(20, 30)]
    assert streams("tail", "a", "-n", "0").out == b""
    assert len(streams("tail", "a", "-n", "99").lines) == 30
    assert streams("tail", "a", "-n", "1", "--format", "table").lines[3].split() == ["29", "29"]
    streams.refused("tail", "a", "-f", "--format", "table", code=2)


def test_damage_ends_cat_unless_it_is_skipped(streams: Streams) -> None:
    streams.damaged()
    stopped = streams.run("cat", "torn")
    assert (stopped.code, stopped.lines) == (1, ["record 0a", "record 0b"])
    assert "--skip-damaged" in stopped.err
    skipped = streams.run("cat", "torn", "--skip-damaged")
    assert (skipped.code, len(skipped.lines)) == (3, 6)
    assert "entries 2 to 3 are lost" in skipped.err
    assert streams.run("tail", "torn", "-n", "5").code == 3
    assert streams("tail", "torn", "-n", "4").lines[0] == "record 2a"


@dataclass(frozen=True)
class Inner:
    when: datetime
    price: Decimal


@dataclass(frozen=True)
class Everything:
    """A field of each kind."""

    i: int
    f: float
    b: bool
    s: str
    raw: bytes
    at: datetime
    day: date
    clock: time
    lasts: timedelta
    price: Decimal
    id: UUID
    names: list[str]
    ages: dict[str, int]
    inner: Inner
    inners: list[Inner]
    no: int | None


PRICE = Decimal("1.25")
INNER = Inner(datetime(2000, 1, 1, tzinfo=UTC), PRICE)
SOME = Everything(
    i=-1, f=float("nan"), b=True, s='a "b",\nc', raw=b"\xff\x00", at=datetime(2024, 1, 1, tzinfo=UTC),
    day=date(2024, 1, 2), clock=time(1, 2, 3, 4), lasts=timedelta(seconds=1.5), price=PRICE,
    id=UUID(int=5), names=["x", ""], ages={"ann": 3}, inner=INNER, inners=[INNER], no=None,
)  # fmt: skip


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "arrow"])
def test_every_kind_of_value_survives_export_and_publish(streams: Streams, form: str) -> None:
    with hr.open(streams.path) as store:
        for name in ("there", "back"):
            stream = store.stream(name, Everything)
            if name == "there":
                with stream.publisher() as publisher:
                    publisher.publish(SOME)
    file = streams.path.parent / f"all.{form}"
    streams("export", "there", file)
    streams("publish", "back", file)
    assert streams("cat", "back").out == streams("cat", "there").out
    with hr.open(streams.path) as store:
        (entry,) = store.stream("back", Everything).listen()
    assert math.isnan(entry.value.f)
    assert replace(entry.value, f=0.0) == replace(SOME, f=0.0)


def test_bytes_in_json_are_text_or_base64(streams: Streams) -> None:
    streams("create", "a", "--field", "b:bytes")
    streams(
        "publish", "a", given=lines_of([{"b": "text"}, {"b": {"base64": base64.b64encode(b"\xff").decode()}}])
    )
    assert streams.rows("a") == [{"b": "text"}, {"b": {"base64": "/w=="}}]


def test_nanoseconds_are_refused_when_a_stream_is_created(streams: Streams) -> None:
    refused = streams.run("create", "fine", "--field", "k:timestamp[ns]")
    assert refused.code == 1
    assert "nanoseconds" in refused.err
