"""Reading streams with Spark: `spark.read.format("headrace")`."""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.spark.queries import (
    NUMBERS,
    batch_reader,
    numbers,
    publish,
    read,
    read_parts,
)
from tests.spark.test_types import PLAIN, as_shown
from tests.stream.samples import PATIENCE_S, Order, in_thread, order, publish_all

import headrace as hr
from headrace.kernel.errors import Damaged, NotFound, SchemaMismatch, Trimmed
from headrace.log.log import Log
from headrace.log.settings import Finalize
from waiting import until

T0 = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
SMALL_SEGMENTS = hr.Settings(finalize=Finalize(entries=40))


# --- types


def every_type() -> pa.Table:
    """A column of each type, alone and inside lists, maps and structs: a value, and null."""
    fields, arrays = [], []
    for kind, _ in PLAIN:
        value = _sample(kind)
        if getattr(kind, "unit", "") == "ns":
            continue  # streams have no such fields
        for name, whole, wrapped in (
            (str(kind), kind, value),
            (f"list of {kind}", pa.list_(kind), [value, None]),
            (f"map of {kind}", pa.map_(pa.string(), kind), [("a", value), ("b", None)]),
            (f"struct of {kind}", pa.struct([pa.field("in", kind)]), {"in": value}),
        ):
            fields.append(pa.field(name, whole))
            arrays.append(pa.array([wrapped, None], whole))
    return pa.table(arrays, schema=pa.schema(fields))


def _sample(kind: pa.DataType) -> Any:
    checks = pa.types
    if checks.is_null(kind):
        return None
    if checks.is_boolean(kind):
        return True
    if checks.is_unsigned_integer(kind):
        return (1 << kind.bit_width) - 1
    if checks.is_signed_integer(kind):
        return -(1 << kind.bit_width - 1)
    if checks.is_floating(kind):
        return 1.5
    if checks.is_string(kind) or checks.is_large_string(kind) or checks.is_string_view(kind):
        return "Straße 🙂"
    if checks.is_decimal(kind):
        return pa.scalar(-12345, pa.int64()).cast(pa.decimal128(19, 0)).cast(kind).as_py()
    if checks.is_temporal(kind):
        return 86_400_000 if kind == pa.date64() else 43_000
    return b"\x00\xff!"


def test_every_type_comes_through_spark_as_it_is(spark: SparkSession, store: hr.Store) -> None:
    table = every_type()
    with store.stream("s", table.schema).publisher() as publisher:
        publisher.publish_batch(table)
    shown = read(spark, store, "s").toArrow().to_pylist()
    stored = table.to_pylist()
    for field in table.schema:
        wanted = [as_shown(row[field.name], field.type) for row in stored]
        assert [row[field.name] for row in shown] == wanted, field
    assert len(table.schema) > 90


@dataclass(frozen=True, slots=True)
class Placed:
    at: dt.datetime
    amount: float
    tags: list[str]


@dataclass(frozen=True, slots=True)
class Cancelled:
    at: dt.datetime
    reason: str | None


def test_unions_are_a_tag_and_columns_that_may_be_null(spark: SparkSession, store: hr.Store) -> None:
    events = [Placed(T0, 1.5, ["a"]), Cancelled(T0, None), Cancelled(T0 + dt.timedelta(seconds=1), "late")]
    publish_all(store.stream("events", Placed | Cancelled, order_by="at"), events)
    frame = read(spark, store, "events")
    types = {field.name: (field.dataType.simpleString(), field.nullable) for field in frame.schema}
    assert types == {
        "_type": ("string", False),
        "at": ("timestamp", False),
        "amount": ("double", True),
        "tags": ("array<string>", True),
        "reason": ("string", True),
    }
    rows = [(row["_type"], row["amount"], row["tags"], row["reason"]) for row in frame.collect()]
    assert rows == [
        ("Placed", 1.5, ["a"], None),
        ("Cancelled", None, None, None),
        ("Cancelled", None, None, "late"),
    ]


def test_streams_of_bytes_and_empty_streams(spark: SparkSession, store: hr.Store) -> None:
    publish_all(store.stream("raw", bytes), [b"a", b"", b"\x00"])
    assert [bytes(row["data"]) for row in read(spark, store, "raw").collect()] == [b"a", b"", b"\x00"]
    store.stream("empty", bytes)
    assert read(spark, store, "empty", withIndex="true").collect() == []


# --- columns and stretches


def test_columns_indexes_and_keys(spark: SparkSession, store: hr.Store) -> None:
    publish(store, "s", (0, 3))
    assert read(spark, store, "s").columns == ["n", "text"]
    shown = read(spark, store, "s", columns="text,_index", withKey="true").collect()
    assert [tuple(row) for row in shown] == [("row 0", 0, 0), ("row 1", 1, 1), ("row 2", 2, 2)]
    own = spark.read.format("headrace").options(path=str(store.path), stream="s")
    frame = own.schema("_index BIGINT, n INT").load()
    assert [tuple(row) for row in frame.collect()] == [(0, 0), (1, 1), (2, 2)]
    assert frame.schema.simpleString() == "struct<_index:bigint,n:int>"
    assert read(spark, store, "s", columns="_index").count() == 3


def test_a_stretch_by_key_in_parts(spark: SparkSession, store: hr.Store) -> None:
    publish_all(store.stream("orders", Order, order_by="at"), map(order, range(100)))
    first, last = (order(n).at.isoformat() for n in (20, 80))
    frame = read(spark, store, "orders", startKey=first, endKey=last, partitionRows="7", withIndex="true")
    assert frame.rdd.getNumPartitions() > 5
    assert [row["_index"] for row in frame.orderBy("_index").collect()] == list(range(20, 80))
    assert read(spark, store, "orders", startIndex="95", endIndex="1000").count() == 5


def test_old_segments_are_read_through_the_new_type(spark: SparkSession, store: hr.Store) -> None:
    publish(store, "s", (0, 2))
    grown = NUMBERS.append(pa.field("more", pa.list_(pa.int32())))
    with store.stream("s", grown, order_by="n") as stream, stream.publisher() as publisher:
        publisher.publish_batch([{"n": 2, "text": None, "more": [1, None]}])
    rows = [tuple(row) for row in read(spark, store, "s").collect()]
    assert rows == [(0, "row 0", None), (1, "row 1", None), (2, None, [1, None])]
    assert [row["more"] for row in read(spark, store, "s", columns="more").collect()] == [
        None,
        None,
        [1, None],
    ]


# --- what is there, and what is not yet


def test_reading_while_a_publisher_writes(spark: SparkSession, store: hr.Store) -> None:
    """Each read is of a prefix, whole and in order, and none is shorter than the one before."""
    stream = store.stream("s", NUMBERS, order_by="n", settings=SMALL_SEGMENTS)
    allowed = threading.Semaphore(20)  # so many batches for each read, or the writer would run away

    def go_on() -> None:
        with stream.publisher() as publisher:
            for _ in range(80):
                assert allowed.acquire(timeout=PATIENCE_S)
                publisher.publish_batch(numbers(publisher.next_index, publisher.next_index + 7))
                time.sleep(0.01)  # while the read goes on

    writer = in_thread(go_on)
    seen = 0
    for _ in range(3):
        until(lambda: stream.durable_index > seen)  # noqa: B023
        allowed.release(20)
        before = stream.durable_index
        shown = read(spark, store, "s", columns="_index,n", partitionRows="50").toArrow()
        assert shown.column("n").to_pylist() == list(range(shown.num_rows))
        assert shown.column("_index").to_pylist() == list(range(shown.num_rows))
        assert shown.num_rows >= max(seen, before)
        seen = shown.num_rows
    writer.result()


def test_only_what_no_power_cut_can_take_back_is_read(store: hr.Store) -> None:
    stream = store.stream(
        "s", NUMBERS, settings=hr.Settings(durability="interval", sync_interval_ms=3_600_000)
    )
    with Log.open(stream.log.path) as log:
        log.append(numbers(0, 10))
        log.sync(force=True)
        log.append(numbers(10, 20))
        log.sync()  # written, and seen by everyone else; but not on the disk
        assert stream.next_index == 20
        reader = batch_reader(store, "s")
        assert read_parts(reader, reader.partitions()) == list(range(10))
        log.sync(force=True)
        assert read_parts(reader, reader.partitions()) == list(range(20))


# --- damage is never silent


def segments(store: hr.Store, ending: str) -> list[Path]:
    return sorted(path for path in (store.path / "streams" / "s").iterdir() if path.name.endswith(ending))


def flip(path: Path, text: bytes) -> None:
    """One bit, in the text of an entry."""
    raw = bytearray(path.read_bytes())
    raw[raw.index(text)] ^= 1
    path.write_bytes(raw)


def test_a_bit_that_flipped_fails_the_query_in_plain_words(spark: SparkSession, store: hr.Store) -> None:
    publish(store, "s", *((n, n + 10) for n in range(0, 100, 10)), settings=SMALL_SEGMENTS)
    flip(segments(store, ".seg")[1], b"row 55")
    with pytest.raises(Exception, match=r"(?i)damage.*5\d") as caught:
        read(spark, store, "s").collect()
    assert "headrace" in str(caught.value)
    assert read(spark, store, "s", endIndex="40").count() == 40, "what lies before it can be read"


@pytest.mark.parametrize("how", ["lost", "cut", "flipped", "active cut", "active flipped"])
def test_whatever_is_damaged_there_are_all_entries_or_an_error(store: hr.Store, how: str) -> None:
    publish(store, "s", *((n, n + 10) for n in range(0, 100, 10)), settings=SMALL_SEGMENTS)
    reader = batch_reader(store, "s", partitionRows="25")
    assert read_parts(reader, reader.partitions()) == list(range(100))
    final, active = segments(store, ".seg")[1], segments(store, ".active")[0]
    match how:
        case "lost":
            final.unlink()
        case "cut":
            os.truncate(final, final.stat().st_size // 2)
        case "flipped":
            flip(final, b"row 55")
        case "active cut":
            os.truncate(active, active.stat().st_size // 2)
        case "active flipped":
            flip(active, b"row 85")
    with pytest.raises(Damaged):
        read_parts(reader, reader.partitions())


# --- what is not there


def test_entries_that_were_removed_are_told_if_they_are_asked_for(store: hr.Store) -> None:
    publish(store, "s", *((n, n + 10) for n in range(0, 100, 10)), settings=SMALL_SEGMENTS)
    with Log.open(store.path / "streams" / "s") as log:
        log.trim(50)
    with pytest.raises(Trimmed, match="begins at index 50: 20 has been removed"):
        batch_reader(store, "s", startIndex="20").partitions()
    for options in ({}, {"startIndex": "earliest"}, {"startKey": "3"}, {"startIndex": "50"}):
        reader = batch_reader(store, "s", **options)
        assert read_parts(reader, reader.partitions()) == list(range(50, 100))


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"stream": "nope"}, NotFound, "there is no stream 'nope'"),
        ({"path": "/nonexistent"}, NotFound, "there is no store at /nonexistent: check the option 'path'"),
        ({"columns": "n,z"}, SchemaMismatch, "has no column 'z': it has n, text"),
        ({"view": "segment"}, hr.Refused, "there is no view 'segment': there are segments, journal, history"),
        ({"startKey": "soon"}, hr.Refused, "'soon' is not a whole number: stream 's' is ordered by 'n'"),
    ],
)
def test_foreseeable_mistakes_have_a_sentence(
    store: hr.Store, options: dict[str, str], error: type[Exception], sentence: str
) -> None:
    from headrace.spark.datasource import HeadraceSource

    publish(store, "s", (0, 3))
    source = HeadraceSource({"path": str(store.path), "stream": "s", **options})
    with pytest.raises(error, match=sentence):
        source.reader(source.schema()).partitions()
    assert not Path("/nonexistent").exists(), "reading never makes a store"


def test_a_mistake_reaches_the_user_of_spark(spark: SparkSession, store: hr.Store) -> None:
    publish(store, "s", (0, 3))
    with pytest.raises(Exception, match="did you mean 'startIndex'"):
        read(spark, store, "s", startIndx="5")
    with pytest.raises(Exception, match="there is no stream 'nope'"):
        read(spark, store, "nope")
    with pytest.raises(Exception, match="'text' is a string, which cannot be read as int32"):
        own = spark.read.format("headrace").options(path=str(store.path), stream="s").schema("text INT")
        own.load().collect()


def test_a_schema_of_ones_own_may_not_promise_what_the_stream_does_not_hold(store: hr.Store) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    from headrace.spark.datasource import HeadraceSource

    with store.stream("s", NUMBERS).publisher() as publisher:
        publisher.publish_batch([{"n": 1, "text": None}])
    source = HeadraceSource({"path": str(store.path), "stream": "s"})
    reader = source.reader(StructType([StructField("text", StringType(), nullable=False)]))
    with pytest.raises(SchemaMismatch, match="text"):
        list(reader.read(reader.partitions()[0]))  # type: ignore[arg-type]
