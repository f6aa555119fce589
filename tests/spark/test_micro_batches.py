"""Reading a stream as it grows: offsets, limits, restarts, and what must be refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.spark.queries import (
    NUMBERS,
    column,
    micro_batch_reader,
    numbers,
    publish,
    read_parts,
    read_stream,
    write_stream,
)

import headrace as hr
from headrace.kernel.errors import HeadraceError, Trimmed, Truncated, WriterTaken
from headrace.log.log import Log
from headrace.log.settings import Finalize, Retention
from headrace.spark import reader as module
from headrace.spark.origin import FileOrigin

SMALL_SEGMENTS = hr.Settings(finalize=Finalize(entries=10))
ALL = ReadAllAvailable()


def tens(first: int, stop: int) -> list[tuple[int, int]]:
    return [(n, n + 10) for n in range(first, stop, 10)]


def log_of(store: hr.Store) -> Log:
    return Log.open(store.path / "streams" / "s")


def test_offsets_go_from_where_a_query_stands_to_the_end(store: hr.Store) -> None:
    publish(store, "s", (0, 25))
    reader = micro_batch_reader(store, "s")
    start = reader.initialOffset()
    assert start["index"] == 0
    end = reader.latestOffset(start, ALL)
    assert read_parts(reader, reader.partitions(start, end)) == list(range(25))
    assert reader.latestOffset(end, ALL) == end
    assert reader.partitions(end, end) == []
    publish(store, "s", (25, 30))
    more = reader.latestOffset(end, ALL)
    assert read_parts(reader, reader.partitions(end, more)) == list(range(25, 30))
    assert reader.reportLatestOffset() == more
    assert list(start) == list(more) == ["index", "log", "epoch"], "Spark compares offsets as text"


def test_a_limit_of_rows_is_kept(store: hr.Store) -> None:
    publish(store, "s", (0, 25))
    reader = micro_batch_reader(store, "s", maxRowsPerTrigger="10")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    assert isinstance(micro_batch_reader(store, "s").getDefaultReadLimit(), ReadAllAvailable)
    at, taken = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        taken.append(read_parts(reader, reader.partitions(at, end)))
        at = end
    assert [len(part) for part in taken] == [10, 10, 5]
    assert [*taken[0], *taken[1], *taken[2]] == list(range(25))


def test_available_now_ends_at_what_was_there(store: hr.Store) -> None:
    publish(store, "s", (0, 10))
    reader = micro_batch_reader(store, "s")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    publish(store, "s", (10, 20))
    end = reader.latestOffset(start, ALL)
    assert end["index"] == 10
    assert reader.latestOffset(end, ALL) == end
    assert reader.reportLatestOffset()["index"] == 20, "the lag is told all the same"


@pytest.mark.parametrize(
    ("options", "start", "end"),
    [
        ({"startIndex": "latest"}, 20, 20),
        ({"startIndex": "5"}, 5, 20),
        ({"startKey": "7", "endKey": "12"}, 7, 12),
        ({"endIndex": "15"}, 0, 15),
    ],
)
def test_where_a_query_begins_and_ends(
    store: hr.Store, options: dict[str, str], start: int, end: int
) -> None:
    publish(store, "s", (0, 20))
    reader = micro_batch_reader(store, "s", **options)
    begun = reader.initialOffset()
    assert (begun["index"], reader.latestOffset(begun, ALL)["index"]) == (start, end)


def test_a_start_that_is_not_there_is_told(store: hr.Store) -> None:
    publish(store, "s", *tens(0, 50), settings=SMALL_SEGMENTS)
    with pytest.raises(HeadraceError, match="1000"):
        reader = micro_batch_reader(store, "s", startIndex="1000")
        reader.latestOffset(reader.initialOffset(), ALL)
    with log_of(store) as log:
        log.trim(20)
    with pytest.raises(Trimmed, match="20"):
        micro_batch_reader(store, "s", startIndex="5").initialOffset()
    assert micro_batch_reader(store, "s").initialOffset()["index"] == 20


def test_workers_get_a_reader_without_open_files(store: hr.Store) -> None:
    publish(store, "s", (0, 5))
    reader = micro_batch_reader(store, "s", position="p")
    start = reader.initialOffset()  # opens the position
    copy = pickle.loads(pickle.dumps(reader))
    assert reader._position is not None
    assert copy._position is None
    assert read_parts(copy, reader.partitions(start, reader.latestOffset(start, ALL))) == list(range(5))
    reader.stop()


# --- what must be refused


def test_entries_removed_before_they_were_read_fail_the_query_unless_it_says_otherwise(
    store: hr.Store,
) -> None:
    publish(store, "s", *tens(0, 50), settings=SMALL_SEGMENTS)
    reader = micro_batch_reader(store, "s")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    with log_of(store) as log:
        log.trim(20)
    with pytest.raises(Trimmed, match=r"begins at index 20.*from 0 on.*'position'.*failOnDataLoss=false"):
        reader.partitions(start, end)
    lenient = micro_batch_reader(store, "s", failOnDataLoss="false")
    assert read_parts(lenient, lenient.partitions(start, end)) == list(range(20, 50))
    with log_of(store) as log:
        log.trim(50)
    assert lenient.partitions(start, {**end, "index": 30}) == [], "all of the batch is gone"


def test_a_stream_that_was_dropped_and_made_again_is_another(store: hr.Store) -> None:
    publish(store, "s", (0, 20))
    old = micro_batch_reader(store, "s")
    end = old.latestOffset(old.initialOffset(), ALL)
    store.drop("s")
    publish(store, "s", (0, 100))
    again = micro_batch_reader(store, "s")
    for ask in (lambda: again.latestOffset(end, ALL), lambda: again.partitions(end, end)):
        with pytest.raises(Truncated, match=r"not the one that this query has read.*checkpointLocation"):
            ask()


def test_a_stream_that_was_cut_off_is_refused(store: hr.Store) -> None:
    publish(store, "s", (0, 20))
    reader = micro_batch_reader(store, "s")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    with log_of(store) as log:
        log.truncate(10)
    refused = r"'s' was cut off below index 20, up to which this query has read.*checkpointLocation"
    with pytest.raises(Truncated, match=refused):
        reader.latestOffset(end, ALL)
    publish(store, "s", (10, 40))  # entries 10 to 19 are others now: they would be skipped
    for ask in (lambda: reader.latestOffset(end, ALL), lambda: reader.partitions(end, end)):
        with pytest.raises(Truncated, match=refused):
            ask()


def test_a_new_writer_or_one_that_takes_over_disturbs_no_query(store: hr.Store) -> None:
    publish(store, "s", (0, 20))
    reader = micro_batch_reader(store, "s")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    with log_of(store) as old, Log.open(old.path, take_over=True) as log:
        log.append(numbers(20, 25))
        log.sync()
    more = reader.latestOffset(end, ALL)
    assert read_parts(reader, reader.partitions(end, more)) == list(range(20, 25))


def test_what_was_read_may_be_removed(store: hr.Store) -> None:
    """Also at the very moment at which a query looks at it."""
    publish(store, "s", *tens(0, 50), settings=SMALL_SEGMENTS)
    reader = micro_batch_reader(store, "s")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(20))
    with log_of(store) as log:
        log.trim(20)
    assert FileOrigin(str(store.path), "s").epoch_at(19) == 0
    more = reader.latestOffset(end, ALL)
    assert read_parts(reader, reader.partitions(end, more)) == list(range(20, 50))


# --- positions


def test_retention_waits_for_a_query_with_a_position(store: hr.Store) -> None:
    settings = hr.Settings(finalize=Finalize(entries=10), retention=Retention(consumed=True))
    publish(store, "s", *tens(0, 50), (50, 53), settings=settings)
    reader = micro_batch_reader(store, "s", position="p")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(25))

    def kept() -> int:
        with log_of(store) as log:
            log.retain()
            return log.first_index

    assert kept() == 0
    reader.commit(end)
    assert kept() == 20, "whole segments, and only what was read"
    reader.commit(reader.latestOffset(end, ALL))
    assert kept() == 50, "the active segment stays"
    reader.stop()


def test_a_position_is_one_query_at_a_time(store: hr.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POSITION_WAIT_S", 0.0)
    publish(store, "s", (0, 5))
    one, other = (micro_batch_reader(store, "s", position="p") for _ in range(2))
    one.initialOffset()
    with pytest.raises(WriterTaken, match=r"'p'.*in use by another reader"):
        other.initialOffset()
    one.stop()
    assert other.initialOffset()["index"] == 0
    other.stop()


# --- with Spark


def taken(query: Any) -> list[int]:
    """How many rows each batch had."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_a_query_goes_on_where_it_was_and_tells_its_lag(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    settings = hr.Settings(finalize=Finalize(entries=10), retention=Retention(consumed=True))
    publish(store, "s", *tens(0, 50), settings=settings)

    def run() -> Any:
        frame = read_stream(spark, store, "s", maxRowsPerTrigger="20", position="spark")
        return write_stream(frame, store, "out", place / "checkpoint", orderBy="n")

    query = run()
    assert taken(query) == [20, 20, 10]
    source = query.recentProgress[0]["sources"][0]
    assert json.loads(source["latestOffset"])["index"] == 50, "what is there, beyond what was taken"
    assert json.loads(source["endOffset"])["index"] == 20
    publish(store, "s", *tens(50, 80))
    assert taken(run()) == [20, 10]
    assert column(store, "out") == list(range(80))
    with log_of(store) as log:
        log.retain()
        assert 40 <= log.first_index <= 80, "read and remembered; Spark tells of a batch when the next begins"

    # entries that are gone before they were read
    publish(store, "s", *tens(80, 120))
    with log_of(store) as log:
        log.trim(110)
    with pytest.raises(Exception, match="begins at index 110: entries from 80 on were removed"):
        run()
    frame = read_stream(spark, store, "s", failOnDataLoss="false")
    write_stream(frame, store, "out", place / "checkpoint")
    assert column(store, "out") == [*range(80), *range(110, 120)]

    # another stream of the same name
    store.drop("s")
    with store.stream("s", NUMBERS, order_by="n") as stream, stream.publisher() as publisher:
        publisher.publish_batch(numbers(0, 500))
    with pytest.raises(Exception, match="not the one that this query has read"):
        run()
    assert column(store, "out") == [*range(80), *range(110, 120)]
