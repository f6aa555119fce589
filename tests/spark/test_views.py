"""What a store knows of itself, as a DataFrame."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
import xxhash
from pyspark.sql import SparkSession
from tests.spark.queries import publish, read
from tests.stream.samples import Order, order, publish_all

import headrace as hr
from headrace.kernel.errors import BadSettings
from headrace.log.settings import Finalize
from headrace.spark.datasource import HeadraceSource

SMALL_SEGMENTS = hr.Settings(finalize=Finalize(entries=40))


def rows(store: hr.Store, **options: str) -> list[dict[str, object]]:
    source = HeadraceSource({"path": str(store.path), "view": "segments", **options})
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_every_file_of_every_stream_is_told_of(spark: SparkSession, store: hr.Store) -> None:
    publish(store, "numbers", *((n, n + 10) for n in range(0, 100, 10)), settings=SMALL_SEGMENTS)
    publish_all(store.stream("orders", Order, order_by="at"), map(order, range(3)))
    frame = spark.read.format("headrace").options(path=str(store.path), view="segments").load()
    found = [row.asDict() for row in frame.orderBy("stream", "first_index").collect()]
    assert [(row["stream"], row["state"], row["first_index"], row["last_index"]) for row in found] == [
        ("numbers", "final", 0, 39),
        ("numbers", "final", 40, 79),
        ("numbers", "active", 80, None),
        ("orders", "active", 0, None),
    ]
    assert [(row["first_key"], row["last_key"], row["batches"]) for row in found[:2]] == [
        ("0", "39", 4),
        ("40", "79", 4),
    ]
    for row in found:
        path: Path = store.path / "streams" / row["stream"] / row["file"]
        assert row["bytes"] == path.stat().st_size
        if row["state"] == "final":
            assert row["checksum"] == xxhash.xxh3_64_hexdigest(path.read_bytes())
        else:
            assert row["checksum"] is None, "it still changes"
    assert read(spark, store, "orders", view="segments").count() == 1


def test_keys_of_time_are_told_as_times(store: hr.Store) -> None:
    settings = hr.Settings(finalize=Finalize(entries=2))
    stream = store.stream("orders", Order, order_by="at", settings=settings)
    with stream.publisher() as publisher:
        for n in range(3):
            publisher.publish(order(n))
            publisher.flush()
    first, last = rows(store)
    assert (last["state"], last["checksum"]) == ("active", None), "it still changes"
    assert first["first_key"] == order(0).at.isoformat()
    assert isinstance(first["finalized_at"], dt.datetime)


def test_columns_may_be_chosen(store: hr.Store) -> None:
    publish(store, "s", (0, 50), (50, 100), settings=SMALL_SEGMENTS)
    assert [list(row) for row in rows(store, columns="bytes,stream")] == [["bytes", "stream"]] * 2


def test_a_damaged_file_is_still_told_of(store: hr.Store) -> None:
    """The inventory is what one looks at when something is wrong."""
    publish(store, "s", (0, 50), (50, 100), settings=SMALL_SEGMENTS)
    before = rows(store)
    path = store.path / "streams" / "s" / str(before[0]["file"])
    raw = path.read_bytes()
    path.write_bytes(bytes([raw[0] ^ 1]) + raw[1:-40])
    after = rows(store)
    assert [row["file"] for row in after] == [row["file"] for row in before]
    assert after[0]["checksum"] != before[0]["checksum"]
    assert after[1] == before[1]


def test_an_empty_store_has_no_rows(store: hr.Store) -> None:
    assert rows(store) == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"view": "journals"}, "no view 'journals'"), ({"columns": "size"}, "no column 'size': stream, file")],
)
def test_what_is_not_there_is_told(store: hr.Store, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        rows(store, **options)


def test_a_view_is_not_a_stream(store: hr.Store) -> None:
    source = HeadraceSource({"path": str(store.path), "view": "segments"})
    with pytest.raises(BadSettings, match=r"use spark\.read"):
        source.streamReader(source.schema())
