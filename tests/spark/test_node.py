"""Spark through a node: what it reads and writes is what it would over the store's path."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.server.http_node import Asking, Daemon, Served, ipc, served
from tests.spark.queries import NUMBERS, batch_reader, column, entries, numbers, publish, read_parts
from tests.spark.test_sink import COLUMNS, batches, files, staged
from tests.spark.test_sink_failures import failing

import headrace as hr
from headrace.client.errors import CannotConnect
from headrace.kernel.errors import BadSettings, Damaged, KeyOrder, NotFound, Trimmed, Truncated, WriterTaken
from headrace.log.settings import Finalize
from headrace.server import staged_run
from headrace.spark import landing
from headrace.spark.datasource import HeadraceSource
from headrace.spark.reader import BatchReader, MicroBatchReader
from headrace.spark.sink import BatchSink, Staged, StreamSink
from headrace.stream.errors import PublisherTaken
from headrace.stream.landing import NotTheOwner

SMALL = hr.Settings(finalize=Finalize(entries=40))


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "data") as one:
        yield one


def url(ask: Asking) -> str:
    return f"http://127.0.0.1:{ask.port}"


def source(node: Served, stream: str, **options: str) -> HeadraceSource:
    return HeadraceSource({"url": url(node.ask), "stream": stream, "awaySeconds": "20", **options})


def batch_read(node: Served, stream: str, **options: str) -> BatchReader:
    asked = source(node, stream, **options)
    made = asked.reader(asked.schema())
    assert isinstance(made, BatchReader)
    return made


def stream_read(node: Served, stream: str, **options: str) -> MicroBatchReader:
    asked = source(node, stream, **options)
    made = asked.streamReader(asked.schema())
    assert isinstance(made, MicroBatchReader)
    return made


def sink(node: Served, **options: str) -> StreamSink:
    made = source(node, "out", **{"orderBy": "n", **options}).streamWriter(COLUMNS, overwrite=False)
    assert isinstance(made, StreamSink)
    return made


def target(node: Served, **options: str) -> Any:
    return sink(node, **options)._target


def everything(reader: BatchReader) -> tuple[list[Any], list[Any]]:
    parts = list(reader.partitions())
    return parts, [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


# --- reading


def test_whatever_is_asked_for_a_node_answers_as_the_path_does(node: Served) -> None:
    publish(node.store, "in", (0, 30), (30, 55), (60, 200), (200, 210), settings=SMALL)
    starts: list[dict[str, str]] = [{}, {"startIndex": "33"}, {"startKey": "61"}, {"startIndex": "latest"}]
    ends: list[dict[str, str]] = [{}, {"endIndex": "90"}, {"endKey": "199"}, {"endKey": "-5"}]
    shapes: list[dict[str, str]] = [{}, {"columns": "text"}, {"withIndex": "true", "withKey": "true"}]
    rows: list[dict[str, str]] = [{}, {"partitionRows": "7"}, {"partitionRows": "50"}]
    looks = itertools.cycle(itertools.product(shapes, rows))
    for (start, end), (shape, part) in zip(itertools.product(starts, ends), looks, strict=False):
        options = {**start, **end, **shape, **part}
        over_path = everything(batch_reader(node.store, "in", **options))
        assert everything(batch_read(node, "in", **options)) == over_path, options


def test_micro_batches_go_on_where_they_were_and_notice_another_stream(node: Served) -> None:
    publish(node.store, "in", (0, 100))
    reader = stream_read(node, "in", maxRowsPerTrigger="30")
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    publish(node.store, "in", (100, 110))
    seen: list[int] = []
    while (end := reader.latestOffset(start, limit)) != start:
        seen += read_parts(reader, reader.partitions(start, end))
        start = end
    assert seen == list(range(100)), "AvailableNow ends where the stream did when it began"
    again = stream_read(node, "in")
    end = again.latestOffset(start, again.getDefaultReadLimit())
    assert read_parts(again, again.partitions(start, end)) == list(range(100, 110))
    node.ask.done("DELETE", "/streams/in")
    publish(node.store, "in", (0, 200))
    with pytest.raises(Truncated, match="made anew"):
        stream_read(node, "in").latestOffset(end, limit)


def test_a_position_holds_entries_back_and_has_one_reader(node: Served) -> None:
    publish(node.store, "in", (0, 10))
    reader = stream_read(node, "in", position="job")
    start = reader.initialOffset()
    with pytest.raises(WriterTaken, match="the position 'job' of stream 'in' is in use by another reader"):
        reader._origin.remember("job")
    reader.commit(reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert node.ask.done("GET", "/streams/in/info")["positions"] == {"job": 10}
    reader.stop()
    other = stream_read(node, "in", position="job")
    other.initialOffset()
    assert node.ask.done("GET", "/streams/in/info")["positions"] == {"job": 0}
    other.stop()


def test_what_is_gone_or_was_never_there_is_told_in_one_sentence(node: Served, place: Path) -> None:
    publish(node.store, "in", (0, 100), settings=SMALL)
    with pytest.raises(
        NotFound, match=r"no stream 'no' at http://.*check the option 'stream' \(there are: in\)"
    ):
        source(node, "no").schema()
    with pytest.raises(KeyOrder, match="'x' is not a whole number"):
        list(batch_read(node, "in", startKey="x").partitions())
    with node.store.stream("in").publisher() as publisher:
        publisher.lend(lambda log, ids: log.trim(50))  # type: ignore[attr-defined]
    with pytest.raises(Trimmed):
        list(batch_read(node, "in", startIndex="5").partitions())
    reader = batch_read(node, "in")
    assert read_parts(reader, reader.partitions()) == list(range(50, 100))
    no_journal = HeadraceSource({"url": url(node.ask), "journal": "jobs"})
    with pytest.raises(NotFound, match=r"no journal 'jobs' in http://.*\(there are: none\)"):
        no_journal.reader(no_journal.schema()).partitions()
    with pytest.raises(NotFound, match=r"no journal 'jobs' in http://.*\(there are: none\)"):
        HeadraceSource({"url": url(node.ask), "journal": "jobs", "view": "history"}).schema()
    with pytest.raises(BadSettings, match="give path or url, not both"):
        HeadraceSource({"url": url(node.ask), "path": str(place), "stream": "in"}).schema()
    with pytest.raises(NotFound, match=r"no stream 'no' in http://.*create it first"):
        hr.spark.tail_produce(None, inputs=["no"], output="out", url=url(node.ask))
    with pytest.raises(BadSettings, match="give a store or a url, not both"):
        hr.spark.tail_produce(None, inputs=["in"], output="out", store=place, url=url(node.ask))
    node.stop()
    for call in (
        lambda: source(node, "in").schema(),
        lambda: source(node, "in").writer(COLUMNS, overwrite=False),
        lambda: source(node, "in", awaySeconds="0").streamWriter(COLUMNS, overwrite=False),
        lambda: hr.spark.tail_produce(None, inputs=["in"], output="out", url=url(node.ask)),
    ):
        with pytest.raises(CannotConnect, match=r"^nobody answers at http://127.0.0.1:\d+ .*is it running"):
            call()


# --- writing


def test_a_batch_lands_once_whatever_is_asked_again(node: Served) -> None:
    made = target(node)
    messages = staged(made, 0, [(5, 10)], [(0, 5)])
    staged(made, 0, [(0, 7)])  # by an attempt that failed
    sink(node).commit(messages, 0)
    assert column(node.store, "out") == list(range(10))
    assert files(node.store.path / "staging") == []
    sink(node).abort(messages, 0)  # Spark may say so after a commit that is on the disk
    sink(node).commit(messages, 0)  # and may run the batch again, its runs being gone
    sink(node).commit(staged(made, 0, [(0, 10)]), 0)
    sink(node).commit(staged(made, 1, [(10, 20)], []), 1)
    sink(node).commit(staged(made, 2, [], []), 2)
    assert column(node.store, "out") == list(range(20))
    node.ask.done("POST", "/streams/out", [{"n": 20, "text": "by another publisher"}])
    sink(node).commit(staged(made, 3, [(20, 30)]), 3)
    assert column(node.store, "out") == [*range(20), 20, *range(20, 30)]
    assert files(node.store.path / "staging") == []


def test_whole_writes_land_once_with_an_id_and_without(node: Served) -> None:
    def write(*ranges: tuple[int, int], **options: str) -> tuple[BatchSink, list[Any]]:
        made = BatchSink(target(node, **options))
        messages = [made.write(batches(each)) for each in ranges]
        made.commit(messages)
        return made, messages

    first, messages = write((5, 10), (0, 5))
    write((10, 15))
    first.commit(messages)  # its answer was lost: it is asked for again, behind another one
    write((15, 20), writeId="monday")
    write((15, 20), writeId="monday")
    assert column(node.store, "out") == list(range(20))
    given_up = BatchSink(target(node))
    given_up.write(batches((50, 60)))
    assert len(files(node.store.path / "staging")) == 1
    given_up.abort([])
    assert files(node.store.path / "staging") == []


def test_a_write_whose_commit_outlived_the_node_is_not_repeated(node: Served, place: Path) -> None:
    """The node dies between the commit and the removal of what was staged."""
    made = BatchSink(target(node))
    messages: list[Any] = [made.write(batches((0, 10)))]
    left = {path: path.read_bytes() for path in (node.store.path / "staging").rglob("*.arrow")}
    made.commit(messages)
    for path, data in left.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    made.commit(messages)
    assert column(node.store, "out") == list(range(10))


def test_the_stream_belongs_to_one_query(node: Served) -> None:
    sink(node).commit(staged(target(node), 0, [(0, 5)]), 0)
    with pytest.raises(NotTheOwner, match=r"'out' is written by another query \(q\).*takeOver=true"):
        sink(node).commit(staged(target(node), 0, [(5, 10)], query="two"), 0)
    taking = sink(node, takeOver="true")
    taking.commit(staged(target(node), 7, [(5, 10)], query="two"), 7)
    with pytest.raises(NotTheOwner, match="the query two has taken the stream 'out' over"):
        sink(node).commit(staged(target(node), 1, [(10, 15)]), 1)
    with pytest.raises(NotTheOwner, match="batches 8 to 8 of this query are not in the stream"):
        sink(node).commit(staged(target(node), 9, [(10, 15)], query="two"), 9)
    sink(node, writer="beside").commit(staged(target(node), 0, [(10, 15)], query="three"), 0)
    assert column(node.store, "out") == list(range(15))


def test_what_is_refused_changes_nothing(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    sink(node).commit(staged(target(node), 0, [(0, 10)]), 0)
    with pytest.raises(KeyOrder, match="back from 9 to 5"):
        sink(node).commit(staged(target(node), 1, [(5, 15)]), 1)
    lost = [Staged(each.query, 1, 0, each.runs) for each in staged(target(node), 1, [(10, 15)])]
    sink(node).abort(lost, 1)
    with pytest.raises(NotFound, match=r"is not staged here \(any more\)"):
        sink(node).commit(lost, 1)
    monkeypatch.setattr(landing, "_LOCK_WAIT_S", 0.0)
    with (
        hr.connect(url(node.ask)) as store,
        store.stream("out").publisher(),
        pytest.raises(PublisherTaken, match="has a publisher that holds it alone"),
    ):
        sink(node).commit(staged(target(node), 1, [(10, 15)]), 1)
    assert column(node.store, "out") == list(range(10))
    sink(node).commit(staged(target(node), 1, [(10, 15)]), 1)
    assert column(node.store, "out") == list(range(15))


def test_duplicates_are_left_out_of_streams_with_unique_ids(node: Served) -> None:
    schema = pa.schema([NUMBERS.field("n"), pa.field("text", pa.string(), nullable=False)])
    node.store.stream("out", schema, order_by="n", unique_by="text")
    node.ask.done("POST", "/streams/out", [{"n": 0, "text": "row 3"}])
    sink(node).commit(staged(target(node), 0, [(0, 5), (2, 5)], [(1, 6)]), 0)
    assert column(node.store, "out", "text") == ["row 3", "row 0", "row 1", "row 2", "row 4", "row 5"]
    told = node.ask.done("POST", "/streams/out", [{"n": 9, "text": "row 5"}, {"n": 9, "text": "row 9"}])
    assert told["duplicates"] == [0], "the node's own publisher knows what has landed"
    sink(node).commit(staged(target(node), 1, [(9, 12)]), 1)
    assert column(node.store, "out", "text")[6:] == ["row 9", "row 10", "row 11"]


def test_a_node_that_is_killed_between_staging_and_landing_comes_back(place: Path) -> None:
    daemon = Daemon(place / "data")
    try:
        asked = HeadraceSource({"url": url(daemon.ask), "stream": "out", "orderBy": "n"})

        def sink() -> Any:
            return asked.streamWriter(COLUMNS, overwrite=False)

        messages = staged(sink()._target, 0, [(0, 1000)], [(1000, 2000)])
        daemon.kill()
        daemon.start()
        sink().commit(messages, 0)
        sink().commit(messages, 0)
        sink().commit(staged(sink()._target, 1, [(2000, 2010)]), 1)
        reader = asked.reader(asked.schema())
        assert read_parts(reader, reader.partitions()) == list(range(2010))  # type: ignore[arg-type]
    finally:
        daemon.kill()


@pytest.mark.parametrize("wrong", ["checksum", "order", "columns", "nulls", "no arrow", "compressed bomb"])
def test_a_run_that_would_not_land_is_refused_when_it_comes(
    node: Served, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(node.store, "out", (0, 1))
    table = numbers(1, 5)
    if wrong == "order":
        table = table.take([1, 0, 2])
    if wrong == "columns":
        table = table.append_column("more", [[1] * 4])
    if wrong == "nulls":
        table = pa.table({"n": pa.array([1, None]), "text": ["a", "b"]}, NUMBERS)
    body = b"nothing" if wrong == "no arrow" else ipc(table)
    if wrong == "compressed bomb":
        monkeypatch.setattr(staged_run, "RUN_BYTES_MAX", 1 << 20)
        body = ipc(pa.table({"n": range(1), "text": ["x" * (1 << 20)]}, NUMBERS), "zstd")
    summed = 5 if wrong == "checksum" else xxhash.xxh3_64_intdigest(body)
    path, headers = "/streams/out/staged/q/0/" + "a" * 32, {"Headrace-Checksum": f"{summed:016x}"}
    answer = node.ask("PUT", path, body, headers)
    assert answer.error in {"refused", "key_order", "schema_mismatch", "too_large"}, answer
    assert files(node.store.path / "staging") == []


def test_names_cannot_leave_the_staging_directory(node: Served) -> None:
    publish(node.store, "out", (0, 1))
    headers = {"Headrace-Checksum": "0" * 16}
    run = "a" * 32
    for query, batch, name in (
        ("..%2f..", "0", run),
        (".x", "0", run),
        ("q", "..", run),
        ("q", "0", "..%2fx"),
    ):
        answer = node.ask("PUT", f"/streams/out/staged/{query}/{batch}/{name}", b"x", headers)
        assert answer.error in {"bad_name", "refused", "not_found"}, answer
    for wanted in (
        {"query": "../x", "runs": []},
        {"query": "q", "runs": ["../../streams/out/meta.json"]},
        {"query": "q", "runs": [], "batch": -1},
        {"query": "q", "runs": [], "writer": "a/b"},
        {"query": "q", "runs": [], "head": 1 << 64},
        {"query": "q", "runs": [], "whole": True, "batch": 2},
        {"query": "q"},
    ):
        assert node.ask("POST", "/streams/out/land", wanted).error in {"bad_name", "refused"}, wanted
    assert files(node.store.path / "staging") == []


def test_a_damaged_run_is_not_landed(node: Served) -> None:
    messages = staged(target(node), 0, [(0, 10)])
    (path,) = (node.store.path / "staging").rglob("*.arrow")
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="run the batch again"):
        sink(node).commit(messages, 0)
    sink(node).commit(staged(target(node), 0, [(0, 10)]), 0)
    assert column(node.store, "out") == list(range(10))


# --- on a real Spark


def test_queries_read_and_write_through_a_node_that_dies_between_their_batches(
    spark: SparkSession, place: Path
) -> None:
    """Tasks fail, the node is killed, the query is restarted: the output is what plain Python makes of it."""
    daemon = Daemon(place / "data")
    try:
        options = {"url": url(daemon.ask), "token": "hr-none", "awaySeconds": "120"}
        frame = spark.range(60, numPartitions=2).selectExpr(
            "(id * 7) % 60 AS n", "concat('row ', id) AS text"
        )
        writing = frame.write.format("headrace").mode("append").options(**options)
        writing.options(stream="in", orderBy="n", writeId="monday").save()
        read = spark.read.format("headrace").options(**options, stream="in", partitionRows="20").load()
        wanted = [(n * 7 % 60, f"row {n}") for n in range(60)]
        assert sorted(tuple(row) for row in read.collect()) == sorted(wanted)

        (marks := place / "marks").mkdir()
        reading = spark.readStream.format("headrace").options(**options, stream="in", maxRowsPerTrigger="60")
        made = failing(reading.load(), marks).select("n", "text")

        def run(**more: str) -> StreamingQuery:
            sink = made.writeStream.format("headrace").options(**options, stream="out", orderBy="n", **more)
            query = sink.option("checkpointLocation", str(place / "checkpoint"))
            started = query.trigger(availableNow=True).start()
            started.awaitTermination()
            return started

        query = run()
        assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [60]
        daemon.kill()
        daemon.start()
        more = frame.selectExpr("n + 60 AS n", "text")
        more.write.format("headrace").mode("append").options(**options, stream="in").save()
        for name in ("0", ".0.crc"):  # as if the driver had died before it noted it
            (place / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        run()
        shutil.rmtree(place / "checkpoint")
        with pytest.raises(Exception, match=r"'out' is written by another query.*takeOver=true"):
            run()
    finally:
        daemon.kill()
    with hr.open(place / "data") as store:
        assert entries(store, "out") == [
            {"n": n, "text": text} for n, text in sorted([*wanted, *((n + 60, text) for n, text in wanted)])
        ]
