"""Writing streams with Spark: at once and as a query, typed, in order, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.spark.queries import (
    column,
    entries,
    numbers,
    publish,
    read,
    read_stream,
    write,
    write_stream,
)

import headrace as hr
from headrace.kernel.errors import BadSettings, Broken, KeyOrder, SchemaMismatch
from headrace.log.log import Log
from headrace.spark import landing as landing_module
from headrace.spark.datasource import HeadraceSource
from headrace.spark.landing import Landing
from headrace.spark.sink import BatchSink, Staged, StreamSink, place_of, sink_target
from headrace.stream.errors import PublisherTaken
from headrace.stream.landing import NotTheOwner

COLUMNS = StructType([StructField("n", LongType()), StructField("text", StringType())])


def target(store: hr.Store, **options: str) -> Any:
    source = HeadraceSource({"path": str(store.path), "stream": "out", "orderBy": "n", **options})
    return sink_target(source._options, COLUMNS)


def batches(*ranges: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    for first, stop in ranges:
        yield from numbers(first, stop).to_batches()


def staged(made: Any, batch: int, *tasks: list[tuple[int, int]], query: str = "q") -> list[Staged]:
    """What the tasks of a batch would say, each given some ranges."""
    place = place_of(query, batch)
    return [Staged(query, batch, at, made.stage(place, batches(*task))) for at, task in enumerate(tasks)]


def files(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


# --- with Spark


def test_a_stream_is_made_and_unsorted_rows_of_all_tasks_come_out_sorted(
    spark: SparkSession, store: hr.Store
) -> None:
    frame = spark.range(1000, numPartitions=3)
    frame = frame.selectExpr("(id * 7919) % 1000 AS n", "nullif(concat('row ', id), '') AS text")
    write(frame, store, "out", orderBy="n")
    with store.stream("out") as stream:
        assert stream.order_by == "n"
        assert [(field.name, str(field.type), field.nullable) for field in stream.schema] == [
            ("n", "int64", False),
            ("text", "string", True),
        ]
    wanted = {(n * 7919) % 1000: f"row {n}" for n in range(1000)}
    assert entries(store, "out") == [{"n": n, "text": wanted[n]} for n in range(1000)]
    assert files(store.path / "staging") == []
    write(frame.selectExpr("n + 1000 AS n", "text"), store, "out")
    assert column(store, "out") == list(range(2000))
    write(frame.where("n < 0"), store, "out")
    assert read(spark, store, "out").count() == 2000, "a write of nothing adds nothing"

    # nothing is changed by what is refused
    before = files(store.path)
    for refused, sentence in (
        (frame, "'n' goes back from 1999 to 0"),
        (frame.selectExpr("5000 + n AS n", "1 AS more"), "the stream has no field 'more'"),
        (frame.selectExpr("text"), "the field 'n' .*is missing"),
        (frame.selectExpr("text AS n"), "the field 'n' is int64; the batch has string"),
        (
            frame.selectExpr("IF(n = 500, NULL, n + 5000) AS n", "text"),
            "'n' may not be null, and is in 1 rows",
        ),
    ):
        with pytest.raises(Exception, match=sentence):
            write(refused, store, "out")
    with pytest.raises(Exception, match=r"a stream only grows: write with mode\('append'\)"):
        frame.write.format("headrace").mode("overwrite").options(path=str(store.path), stream="out").save()
    assert column(store, "out") == list(range(2000))
    assert files(store.path) == before


def test_a_write_with_an_id_is_written_once(spark: SparkSession, store: hr.Store) -> None:
    frame = spark.range(10).selectExpr("id AS n", "'x' AS text")
    for _ in range(2):
        write(frame, store, "out", orderBy="n", writeId="monday")
    write(frame.selectExpr("n + 10 AS n", "text"), store, "out", writeId="tuesday")
    write(frame, store, "out", writeId="monday")
    assert column(store, "out") == list(range(20))


def test_a_query_writes_and_another_may_not(spark: SparkSession, store: hr.Store, place: Path) -> None:
    """One that lost its checkpoint is refused, may take over, and then the one before is refused for good."""
    publish(store, "in", (0, 100))

    def run(checkpoint: str, **options: str) -> None:
        reading = {key: options.pop(key) for key in ("startIndex",) if key in options}
        frame = read_stream(spark, store, "in", maxRowsPerTrigger="60", **reading)
        frame = frame.selectExpr("n * 2 AS n", "upper(text) AS text")
        write_stream(frame, store, "out", place / checkpoint, **options)

    run("one", orderBy="n")
    first = [{"n": n * 2, "text": f"ROW {n}"} for n in range(100)]
    assert entries(store, "out") == first
    assert files(store.path / "staging") == []
    publish(store, "in", (100, 150))
    with pytest.raises(Exception, match=r"'out' is written by another query.*takeOver=true"):
        run("lost", startIndex="100")
    assert entries(store, "out") == first
    run("two", startIndex="100", takeOver="true")
    whole = first + [{"n": n * 2, "text": f"ROW {n}"} for n in range(100, 150)]
    assert entries(store, "out") == whole
    publish(store, "in", (150, 160))
    for options in ({}, {"takeOver": "true"}):
        with pytest.raises(Exception, match="has taken the stream 'out' over"):
            run("one", **options)
    assert entries(store, "out") == whole
    run("beside", startIndex="150", writer="another")
    assert column(store, "out") == [n * 2 for n in range(160)]


# --- without Spark: each step by itself


def test_a_batch_that_is_there_is_not_written_again(store: hr.Store) -> None:
    made = target(store)
    sink = StreamSink(made)
    messages = staged(made, 0, [(5, 10)], [(0, 5)])
    orphan = made.area.path / "q" / "0" / "left-by-an-attempt-that-failed.arrow"
    orphan.write_bytes(b"half a file")
    sink.commit(messages, 0)
    assert column(store, "out") == list(range(10))
    assert files(made.area.path) == [], "the batch's files and those of failed attempts are gone"
    sink.abort(messages, 0)  # Spark may say so after a commit that is on the disk
    sink.commit(messages, 0)  # and may run the batch again, its files being gone
    sink.commit(staged(made, 0, [(0, 10)]), 0)
    assert column(store, "out") == list(range(10))
    sink.commit(staged(made, 1, [(10, 20)], []), 1)
    sink.commit(staged(made, 2, [], []), 2)
    assert column(store, "out") == list(range(20))
    assert files(made.area.path) == []


def test_what_was_aborted_leaves_nothing(store: hr.Store) -> None:
    made = target(store)
    messages: list[Any] = staged(made, 0, [(0, 5)], [(5, 10)])
    StreamSink(made).abort([*messages, None], 0)
    assert files(made.area.path) == []
    write_sink = BatchSink(made)
    message = write_sink.write(batches((0, 5)))
    assert len(files(made.area.path)) == 1
    write_sink.abort([message, None])
    assert files(made.area.path) == []
    assert column(store, "out") == []


def test_the_work_of_two_attempts_counts_once(store: hr.Store) -> None:
    """Speculative execution: the driver takes what it is told of, and nothing else that lies there."""
    made = target(store)
    slow = staged(made, 0, [(0, 5)], [(5, 10)])
    quick = staged(made, 0, [(0, 5)], [(5, 10)])
    StreamSink(made).commit([quick[0], slow[1]], 0)
    assert column(store, "out") == list(range(10))
    assert files(made.area.path) == []


def test_without_an_order_key_rows_stand_in_the_order_of_tasks(store: hr.Store) -> None:
    store.stream("plain", numbers(0, 0).schema)
    source = HeadraceSource({"path": str(store.path), "stream": "plain"})
    made = sink_target(source._options, COLUMNS)
    StreamSink(made).commit(staged(made, 0, [(7, 9)], [(0, 2)], [(4, 6)])[::-1], 0)
    assert column(store, "plain") == [7, 8, 0, 1, 4, 5]


def test_a_batch_may_move_head(store: hr.Store) -> None:
    """So that who reads the output knows how far it is complete; never back, and never twice."""
    landing: Landing = target(store).landing
    landing.land("q", 0, batches((0, 5)), head=(1 << 63) + 50)
    landing.land("q", 1, [], head=(1 << 63) + 40)
    with Log.open(store.path / "streams" / "out") as log:
        assert log.head_key == (1 << 63) + 50


@pytest.mark.parametrize("lacking", ["a task", "all tasks", "another batch"])
def test_a_batch_that_is_not_whole_is_not_landed(store: hr.Store, lacking: str) -> None:
    made = target(store)
    messages: list[Any] = staged(made, 1 if lacking == "another batch" else 0, [(0, 5)], [(5, 10)])
    given = {"a task": [messages[0], None], "all tasks": [], "another batch": messages}[lacking]
    with pytest.raises(Broken, match="batch 0 is not complete"):
        StreamSink(made).commit(given, 0)
    assert column(store, "out") == []


def test_late_keys_are_refused_with_nothing_changed(store: hr.Store) -> None:
    made = target(store)
    sink = StreamSink(made)
    sink.commit(staged(made, 0, [(0, 10)]), 0)
    with Log.open(store.path / "streams" / "out") as log:
        log.head(50)
    for late in ((5, 15), (20, 60)):  # below the last entry, and below HEAD
        with pytest.raises(KeyOrder, match=f"back from 50 to {late[0]}"):
            sink.commit(staged(made, 1, [late]), 1)
        assert column(store, "out") == list(range(10))
    sink.commit(staged(made, 1, [(50, 60)]), 1)
    assert column(store, "out") == [*range(10), *range(50, 60)]


def test_a_late_key_deep_in_a_large_batch_leaves_no_part_of_it(store: hr.Store) -> None:
    """Parts of a group are written before it is whole: none of them may stay."""
    made = target(store)
    landing: Landing = made.landing

    def parts() -> Iterator[pa.RecordBatch]:
        yield from batches((0, 1000), (1000, 2000))
        yield from batches((5, 6))

    with pytest.raises(KeyOrder):
        landing.land("q", 0, parts())
    assert column(store, "out") == []
    landing.land("q", 0, batches((0, 10)))
    assert column(store, "out") == list(range(10))


def test_duplicates_are_left_out_of_streams_with_unique_ids(store: hr.Store) -> None:
    schema = pa.schema(
        [pa.field("n", pa.int64(), nullable=False), pa.field("text", pa.string(), nullable=False)]
    )
    with (
        store.stream("out", schema, order_by="n", unique_by="text") as stream,
        stream.publisher() as publisher,
    ):
        publisher.publish_batch([{"n": 0, "text": "row 3"}])
    made = target(store)
    sink = StreamSink(made)
    sink.commit(staged(made, 0, [(0, 5), (2, 5)], [(1, 6)]), 0)
    assert column(store, "out", "text") == ["row 3", "row 0", "row 1", "row 2", "row 4", "row 5"]
    sink.commit(staged(made, 1, [(5, 8)]), 1)
    assert column(store, "out", "text")[6:] == ["row 6", "row 7"]
    with store.stream("out") as stream, stream.publisher() as publisher:  # the index of ids has kept up
        assert publisher.publish_batch([{"n": 99, "text": "row 7"}]).duplicates == (0,)


def test_batches_that_are_missing_are_told(store: hr.Store) -> None:
    landing: Landing = target(store).landing
    landing.land("q", 0, batches((0, 5)))
    with pytest.raises(NotTheOwner, match="batches 1 to 2 of this query are not in the stream 'out'"):
        landing.land("q", 3, batches((5, 10)))
    landing.land("q", 1, batches((5, 10)))
    with Log.open(store.path / "streams" / "out") as log:
        log.truncate(5)  # as if it had been put back from a copy
    with pytest.raises(NotTheOwner, match="batches 1 to 1"):
        landing.land("q", 2, batches((10, 15)))
    assert column(store, "out") == list(range(5))
    fresh = Landing(landing.path, "other", take_over=False)
    publish(store, "other", (0, 1))
    with pytest.raises(NotTheOwner, match="batches 0 to 6"):
        fresh.land("q", 7, batches((5, 10)))


def test_a_stream_belongs_to_the_query_that_wrote_last(store: hr.Store) -> None:
    path = target(store).landing.path
    plain, taking = Landing(path, "out"), Landing(path, "out", take_over=True)
    plain.land("one", 0, batches((0, 5)))
    with pytest.raises(NotTheOwner, match=r"'out' is written by another query \(one\).*takeOver=true"):
        plain.land("two", 0, batches((5, 10)))
    taking.land("two", 7, batches((5, 10)))  # its checkpoint may be further on
    for landing in (plain, taking):
        for batch in (0, 1):  # also what is there already: it must learn that it is no longer the owner
            with pytest.raises(NotTheOwner, match="the query two has taken the stream 'out' over"):
                landing.land("one", batch, batches((10, 15)))
    plain.land("two", 8, batches((10, 15)))
    Landing(path, "out", writer="beside").land("three", 0, batches((15, 20)))
    plain.land("two", 9, batches((20, 25)))
    plain.land_whole(batches((25, 30)))
    plain.land("two", 10, batches((30, 35)))
    assert column(store, "out") == list(range(35))


def test_names_of_writers_are_not_mixed_up(store: hr.Store) -> None:
    """Whatever is in them: ids of writes are often times."""
    path = target(store).landing.path
    for at, writer in enumerate(("write:10:30", "write:10", "write", "a:b", "a", "")):
        Landing(path, "out", writer).land("once", 0, batches((at, at + 1)))
        Landing(path, "out", writer).land("once", 0, batches((at, at + 1)))
    assert column(store, "out") == list(range(6))


def test_a_publisher_that_is_open_is_told(store: hr.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing_module, "_LOCK_WAIT_S", 0.0)
    landing: Landing = target(store).landing
    with store.stream("out") as stream:
        with (
            stream.publisher(),
            pytest.raises(PublisherTaken, match="'out' has a publisher already: close it"),
        ):
            landing.land("q", 0, batches((0, 5)))
        landing.land("q", 0, batches((0, 5)))
    assert column(store, "out") == list(range(5))


def test_what_a_batch_lands_is_on_the_disk(store: hr.Store) -> None:
    """Whatever the durability of the stream says: Spark will not run the batch again."""
    settings = hr.Settings(durability="interval", sync_interval_ms=3_600_000)
    publish(store, "out", settings=settings)
    landing = Landing(str(store.path), "out")
    landing.land("q", 0, batches((0, 5)))
    with store.stream("out") as stream:
        assert stream.durable_index == 5
    landing.land_whole(batches((5, 9)))
    with store.stream("out") as stream:
        assert stream.durable_index == 9


def test_writes_without_an_id_are_all_written(store: hr.Store) -> None:
    made = target(store)
    for first in (0, 5):
        sink = BatchSink(made)
        sink.commit([sink.write(batches((first, first + 5)))])
    assert column(store, "out") == list(range(10))


def test_what_cannot_be_made_or_written_to_is_told_at_the_start(store: hr.Store) -> None:
    publish(store, "out", (0, 1))
    with pytest.raises(SchemaMismatch, match="'out' is ordered by n, not"):
        target(store, orderBy="text")
    with pytest.raises(SchemaMismatch, match="orderBy names 'at', which is not a column: n, text"):
        target(store, stream="new", orderBy="at")
    assert store.streams() == ["out"]
    source = HeadraceSource({"path": str(store.path), "stream": "out"})
    for method in (source.writer, source.streamWriter):
        with pytest.raises(BadSettings, match="a stream only grows"):
            method(COLUMNS, True)
