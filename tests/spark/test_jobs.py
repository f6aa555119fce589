"""The jobs on a real Spark: archive, verify, compact and run."""

from __future__ import annotations

import datetime as dt
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")
from tests.spark.queries import CAMPAIGN

import headrace as hr
from headrace.kernel.errors import NotFound, SchemaMismatch
from headrace.log.damage import Report
from headrace.log.settings import Finalize, Settings
from headrace.spark.archive import archive
from headrace.spark.compact import compact
from headrace.spark.explain import SparkFailed
from headrace.spark.job import spread, watched
from headrace.spark.run import PipelineFailed, run
from headrace.spark.verify import verify
from headrace.stream.errors import StreamExists

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIDNIGHT = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
ROOT = Path(__file__).parents[2]
CHILD = [sys.executable, "-m", "tests.spark.archive_child"]
SMALL = Settings(finalize=Finalize(entries=100))


@dataclass(frozen=True, slots=True)
class Order:
    at: dt.datetime
    number: int
    user: str


def publish_orders(store: hr.Store, first: int, stop: int, minutes: int = 10) -> list[Order]:
    chosen = random.Random(first)
    orders = [
        Order(MIDNIGHT + dt.timedelta(minutes=minutes * (n // 3)), n, f"u{chosen.randrange(40)}")
        for n in range(first, stop)
    ]
    with store.stream("orders", Order, order_by="at", settings=SMALL).publisher() as publisher:
        for at in range(0, len(orders), 70):
            for order in orders[at : at + 70]:
                publisher.publish(order)
            publisher.flush()
    return orders


# --- work for Spark's workers


def test_work_is_spread_and_its_results_come_in_order(spark: SparkSession) -> None:
    assert spread(spark, [3, 1, 2], lambda item: item * 10) == [30, 10, 20]
    assert spread(spark, [], lambda item: item) == []


def test_a_task_that_fails_is_tried_again(spark: SparkSession, place: Path) -> None:
    def fail_once(item: int) -> int:
        marker = place / str(item)
        if not marker.exists():
            marker.touch()
            raise OSError("the first try")
        return item

    assert spread(spark, [1, 2], fail_once) == [1, 2]


def test_progress_is_told_while_spark_works(spark: SparkSession, place: Path) -> None:
    seen = place / "seen"

    def wait(item: int) -> int:
        while not seen.exists():
            pass
        return item

    def progress(done: int, total: int) -> None:
        assert 0 <= done <= total
        seen.touch()

    with watched(spark, progress):
        assert spread(spark, [1], wait) == [1]


# --- archive


def test_an_archive_is_read_by_everybody(spark: SparkSession, store: hr.Store, place: Path) -> None:
    orders = publish_orders(store, 0, 1000)
    done = archive(spark, store, "orders", to=place / "lake", rows_per_file=200)
    assert (done.entries, done.next_index) == (1000, 1000)
    numbers = list(range(1000))
    assert sorted(ds.dataset(place / "lake", partitioning="hive").to_table()["number"].to_pylist()) == numbers
    shown = spark.read.parquet(str(place / "lake"))
    assert sorted(row.number for row in shown.select("number").collect()) == numbers
    days = {row.day: row["count"] for row in shown.groupBy("day").count().collect()}
    assert days == Counter(order.at.date() for order in orders)
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(f"select number from read_parquet('{place}/lake/**/*.parquet') order by 1").fetchall()
    assert [number for (number,) in found] == numbers


@pytest.mark.skipif(not CAMPAIGN, reason="most of a minute: make campaign runs it")
def test_a_killed_archive_goes_on_and_every_entry_is_in_one_file(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    publish_orders(store, 0, 1000)
    words = [*CHILD, str(store.path), "orders", str(place / "lake"), "7"]
    killed = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=600, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    begun = sorted((place / "lake").rglob("*.parquet"))
    assert len(begun) == 7
    before = [path.stat().st_mtime_ns for path in begun]
    publish_orders(store, 1000, 1100)
    archive(spark, store, "orders", to=place / "lake")
    files = [str(path) for path in (place / "lake").rglob("*.parquet")]
    found = [number for file in files for number in ds.dataset(file).to_table()["number"].to_pylist()]
    assert sorted(found) == list(range(1100))
    assert [path.stat().st_mtime_ns for path in begun] == before, "what readers have seen stays"


# --- verify


def reports(spark: SparkSession, store: hr.Store, name: str) -> tuple[Report, Report]:
    """What Spark says, and what is said without it."""
    return verify(spark, store, name).reports[name], store.stream(name).verify()


def test_spark_says_of_a_whole_stream_what_is_said_without_it(spark: SparkSession, store: hr.Store) -> None:
    publish_orders(store, 0, 1000)
    store.stream("empty", Order, order_by="at")
    for name in ("orders", "empty"):
        on_spark, here = reports(spark, store, name)
        assert on_spark == here
        assert on_spark.ok
    told: list[tuple[int, int]] = []
    assert verify(spark, store, progress=lambda done, total: told.append((done, total))).ok
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize("harm", ["body", "footer", "missing", "cut", "mark"])
def test_spark_says_of_a_damaged_stream_what_is_said_without_it(
    spark: SparkSession, store: hr.Store, harm: str
) -> None:
    publish_orders(store, 0, 1000)
    path = store.stream("orders").log.path
    segments = sorted(path.glob("*.seg"))
    match harm:
        case "body" | "footer":
            content = bytearray(segments[2].read_bytes())
            content[len(content) // 2 if harm == "body" else -100] ^= 0xFF
            segments[2].write_bytes(content)
        case "missing":
            segments[3].unlink()
        case "cut":
            (active,) = path.glob("*.active")
            active.write_bytes(active.read_bytes()[:300])
        case "mark":
            (path / "mark").write_bytes(b"?" * 64)
    on_spark, here = reports(spark, store, "orders")
    assert on_spark == here
    assert not on_spark.ok


def test_all_streams_are_checked_and_those_that_cannot_be_opened_are_told(
    spark: SparkSession, store: hr.Store
) -> None:
    publish_orders(store, 0, 300)
    broken = store.stream("broken", Order, order_by="at").log.path
    (broken / "meta.json").write_bytes(b"{")
    found = verify(spark, store)
    assert (list(found.reports), list(found.unreadable), found.ok) == (["orders"], ["broken"], False)
    with pytest.raises(NotFound, match="nope"):
        verify(spark, store, "nope")
    with pytest.raises(NotFound, match="there is no store"):
        verify(spark, store.path / "nope")


# --- compact


def entries(store: hr.Store, name: str) -> list[Any]:
    return [entry.value for entry in store.stream(name).listen()]


def test_the_latest_entry_of_each_value_remains_in_the_old_order(
    spark: SparkSession, store: hr.Store
) -> None:
    orders = publish_orders(store, 0, 1000)
    done = compact(spark, store, "orders", "latest", by="user")
    latest = {order.user: order for order in orders}
    wanted = sorted(latest.values(), key=lambda order: order.number)
    assert (done.read, done.entries) == (1000, len(latest))
    assert [entry.value for entry in store.stream("latest", Order, order_by="at").listen()] == wanted
    old, new = store.stream("orders").log, store.stream("latest").log
    assert (new.schema, new.meta.order_by, new.meta.extra) == (old.schema, old.meta.order_by, old.meta.extra)
    assert new.settled.head_key == old.settled.head_key
    assert new.verify().ok
    assert list((store.path / "staging" / "orders").iterdir()) == []
    with store.stream("latest", Order, order_by="at").publisher() as publisher:
        publisher.publish(orders[-1])


def test_types_that_spark_does_not_have_go_through_unchanged(spark: SparkSession, store: hr.Store) -> None:
    kinds = {"key": pa.string(), "big": pa.uint64(), "took": pa.duration("us"), "clock": pa.time64("us")}
    schema = pa.schema(kinds)
    rows = {
        "key": ["a", None, "a", None],
        "big": [1, 2, 1 << 63, 4],
        "took": [1, 2, 3, 4],
        "clock": [5, 6, 7, 8],
    }
    with store.stream("odd", schema).publisher() as publisher:
        publisher.publish_batch(pa.table(rows, schema=schema))
    assert compact(spark, store, "odd", "even", by="key").entries == 2
    (batch,) = store.stream("even").listen_batches()
    assert batch.records.equals(pa.record_batch(rows, schema=schema).slice(2))


def test_unique_ids_stay_unique(spark: SparkSession, store: hr.Store) -> None:
    schema = pa.schema([("id", pa.string()), ("user", pa.string())])
    with store.stream("ids", schema, unique_by="id").publisher() as publisher:
        publisher.publish_batch(pa.record_batch({"id": ["a", "b", "c"], "user": ["x", "x", "y"]}))
    assert compact(spark, store, "ids", "latest", by="user").entries == 2
    with store.stream("latest").publisher() as publisher:
        published = publisher.publish_batch(pa.record_batch({"id": ["b", "d"], "user": ["x", "y"]}))
    assert published.duplicates == (0,)


def test_an_empty_stream_compacts_to_an_empty_one(spark: SparkSession, store: hr.Store) -> None:
    store.stream("orders", Order, order_by="at")
    assert compact(spark, store, "orders", "latest", by="user").entries == 0
    assert entries(store, "latest") == []


def test_compacting_refuses_what_is_there_and_what_is_not(spark: SparkSession, store: hr.Store) -> None:
    publish_orders(store, 0, 10)
    with pytest.raises(StreamExists, match="there is a stream 'orders'"):
        compact(spark, store, "orders", "orders", by="user")
    with pytest.raises(SchemaMismatch, match="has no field 'nope': it has at, number, user"):
        compact(spark, store, "orders", "latest", by="nope")
    assert store.streams() == ["orders"]


def test_damage_stops_compacting_and_leaves_nothing(spark: SparkSession, store: hr.Store) -> None:
    publish_orders(store, 0, 1000)
    path = store.stream("orders").log.path
    segment = sorted(path.glob("*.seg"))[1]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    with pytest.raises(hr.Damaged, match=r"entries .* are lost"):
        compact(spark, store, "orders", "latest", by="user")
    assert store.streams() == ["orders"]


# --- run

SCRIPT = """
import json, sys
from headrace.spark import session
from pyspark.sql import SparkSession
same = session() is spark and SparkSession.builder.getOrCreate() is spark
json.dump([__name__, sys.argv[1:], store, same], open(sys.argv[1], "w"))
"""


def script(place: Path, text: str) -> Path:
    (place / "pipeline.py").write_text(text)
    return place / "pipeline.py"


def test_a_file_runs_as_a_script_with_the_session_that_is_there(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    out = str(place / "out")
    argv, path = list(sys.argv), list(sys.path)
    done = run(spark, script(place, SCRIPT), [out, "--more"], store=store)
    assert (done.code, done.queries) == (0, 0)
    assert Path(out).read_text() == f'["__main__", ["{out}", "--more"], "{store.path}", true]'
    assert (sys.argv, sys.path) == (argv, path)


def test_queries_that_it_starts_are_waited_for(spark: SparkSession, store: hr.Store, place: Path) -> None:
    publish_orders(store, 0, 100)
    text = """
options = {"path": store, "stream": "orders"}
orders = spark.readStream.format("headrace").options(**options).load()
copy = {"path": store, "stream": "copy", "orderBy": "at", "checkpointLocation": store + "/../checkpoint"}
orders.writeStream.format("headrace").options(**copy).trigger(availableNow=True).start()
"""
    assert run(spark, script(place, text), store=store).queries == 1
    assert len(entries(store, "copy")) == 100


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("x = 1\n1 / 0", PipelineFailed, "pipeline.py, line 2: ZeroDivisionError: division by zero"),
        ("def f(:", PipelineFailed, "pipeline.py, line 1: SyntaxError"),
        ("import sys\nsys.exit('no data')", PipelineFailed, "pipeline.py ended: no data"),
        (
            "spark.read.parquet('/no/such')",
            SparkFailed,
            "line 1: Spark says: Path does not exist",
        ),
        (
            "spark.read.format('headrace').option('path', store).option('stream', 'nope').load()",
            NotFound,
            "pipeline.py, line 1: there is no stream 'nope'",
        ),
    ],
)
def test_a_file_that_fails_says_where_and_why(
    spark: SparkSession, store: hr.Store, place: Path, text: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind) as raised:
        run(spark, script(place, text), store=store)
    assert words in str(raised.value)


def test_its_exit_code_is_passed_on_and_a_missing_file_is_told(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    assert run(spark, script(place, "import sys\nsys.exit(7)"), store=store).code == 7
    with pytest.raises(NotFound, match="there is no file"):
        run(spark, place / "nope.py", store=store)
