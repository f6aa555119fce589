"""Whatever fails around a query, its output is exactly what plain Python makes of the input.

Long versions run with HEADRACE_CAMPAIGN=1. Speculative execution needs two hosts (Spark never puts the second
attempt on the host of the first), so `test_sink` does by hand what it does: two attempts stage, one counts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.server.http_node import Daemon
from tests.spark import driver
from tests.spark.queries import (
    CAMPAIGN,
    column,
    entries,
    numbers,
    publish,
    read,
    read_stream,
    write,
    write_stream,
)
from tests.spark.test_sink import batches, files, staged, target
from tests.stream.samples import PATIENCE_S

import headrace as hr
from headrace.client.remote import RemoteStore
from headrace.kernel.errors import DiskFull
from headrace.spark.landing import Landing
from headrace.spark.sink import BATCH_ID, QUERY_ID, StreamSink


def failing(frame: DataFrame, marks: Path) -> DataFrame:
    """The same rows, made by tasks of which the first attempt raises and the second dies, both half-way."""
    names = (QUERY_ID, BATCH_ID)

    def rows(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber()
        (marks / f"{context.stageId()}-{context.partitionId()}-{attempt}").touch()
        for batch in given:
            said = [[context.getLocalProperty(name) or ""] * batch.num_rows for name in names]
            yield pa.record_batch([*batch.columns, *said], names=["n", "text", "query", "batch"])
            if attempt == 0:
                raise RuntimeError("an attempt that fails after half of its work")
            if attempt == 1:
                os._exit(9)

    return frame.mapInArrow(rows, "n BIGINT, text STRING, query STRING, batch STRING")


def test_tasks_that_raise_and_workers_that_die(spark: SparkSession, store: hr.Store, place: Path) -> None:
    """And what Spark tells its tasks of query and batch, under names that it does not promise to keep."""
    publish(store, "in", (0, 60))
    (marks := place / "marks").mkdir()
    frame = failing(read_stream(spark, store, "in", maxRowsPerTrigger="40", partitionRows="20"), marks)
    query = write_stream(frame, store, "out", place / "checkpoint", orderBy="n")
    assert entries(store, "out") == [
        {"n": n, "text": f"row {n}", "query": query.id, "batch": str(n // 40)} for n in range(60)
    ]
    assert files(store.path / "staging") == []
    tried = [path.name.rpartition("-")[2] for path in marks.iterdir()]
    assert tried.count("0") == tried.count("1") == tried.count("2") == 3, "each task failed twice"

    write(failing(read(spark, store, "in"), marks).select("n", "text"), store, "copy", orderBy="n")
    assert entries(store, "copy") == numbers(0, 60).to_pylist()
    assert files(store.path / "staging") == []


def test_a_batch_that_fails_for_good_changes_nothing_and_can_be_run_again(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    publish(store, "in", (0, 30))
    frame = read_stream(spark, store, "in", maxRowsPerTrigger="10")
    bad = frame.selectExpr("n", "IF(n = 25, raise_error('broken'), text) AS text")
    with pytest.raises(Exception, match="broken"):
        write_stream(bad, store, "out", place / "checkpoint", orderBy="n")
    assert column(store, "out") == list(range(20))
    write_stream(frame, store, "out", place / "checkpoint")
    assert entries(store, "out") == numbers(0, 30).to_pylist()
    assert files(store.path / "staging") == []


def test_a_commit_that_spark_did_not_note_is_not_repeated(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    """The driver dies between our commit and Spark's own record of it: Spark runs the batch again."""
    publish(store, "in", (0, 30))
    frame = read_stream(spark, store, "in", maxRowsPerTrigger="10")

    def run() -> Any:
        return write_stream(frame, store, "out", place / "checkpoint", orderBy="n")

    run()
    assert column(store, "out") == list(range(30))
    commits = place / "checkpoint" / "commits"
    for name in ("2", ".2.crc"):
        (commits / name).unlink(missing_ok=True)
    query = run()
    assert query.recentProgress[0]["batchId"] == 2, "the batch did run again"
    assert column(store, "out") == list(range(30))

    # the same where the whole batch was landed by a driver that nobody saw again
    publish(store, "in", (30, 40))
    Landing(str(store.path), "out").land(query.id, 3, batches((30, 40)))
    run()
    assert column(store, "out") == list(range(40))
    publish(store, "in", (40, 50))
    run()
    assert entries(store, "out") == numbers(0, 50).to_pylist()


# --- kill -9


def wait_for(process: subprocess.Popen[bytes], store: hr.Store | RemoteStore, rows: int) -> None:
    """Until the driver has landed so many rows."""
    end = time.monotonic() + 3 * PATIENCE_S
    while landed(store) < rows:
        if process.poll() is not None:
            raise AssertionError(
                f"the driver has ended: {process.stderr and process.stderr.read()[-3000:]!r}"
            )
        assert time.monotonic() < end, f"the driver landed {landed(store)} rows of {rows}"
        time.sleep(0.01)


def landed(store: hr.Store | RemoteStore) -> int:
    if "out" not in store.streams():
        return 0
    with store.stream("out") as stream:
        return stream.next_index


def test_drivers_that_are_killed_at_any_moment_and_another_beside_them(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    """kill -9 for JVM, driver and workers; the last one meets a second driver before it dies.

    Each has two queries: one writes a stream, the other puts jobs, which are done whenever nobody runs.
    """
    chance = Random()
    kills, rows = (20, 100) if CAMPAIGN else (1, 100)
    publish(store, "in", (0, total := kills * 2500))
    checkpoint, jobs = place / "checkpoint", place / "checkpoint-jobs"
    reading = read_stream(spark, store, "in", maxRowsPerTrigger="2000")
    frame, done = driver.doubled(reading), list[tuple[str, bytes]]()
    for life in range(kills):
        process = driver.start(store.path, checkpoint, rows)
        try:
            wait_for(process, store, landed(store) + rows * chance.randint(2, 6))
            time.sleep(chance.random() * 0.5)  # anywhere in the midst of a batch
            if life == kills - 1:
                with suppress(PySparkException):  # one of two may be told that there is another
                    write_stream(frame, store, "out", place / "checkpoint-out")
        finally:
            driver.kill_all(process)
        assert column(store, "out") == [n * 2 for n in range(landed(store))], "a prefix, whole and in order"
        done += all_done(store)
        assert sorted(done) == sorted(as_job(n) for n in range(len(done))), "each of a prefix once"
    write_stream(frame, store, "out", place / "checkpoint-out")
    assert entries(store, "out") == [{"n": n * 2, "text": f"row {n}"} for n in range(total)]
    put = driver.as_jobs(reading).writeStream.format("headrace").trigger(availableNow=True)
    put.options(path=str(store.path), journal="jobs", checkpointLocation=str(jobs)).start().awaitTermination()
    assert sorted(done + all_done(store)) == sorted(as_job(n) for n in range(total))
    assert files(store.path / "staging") == []


def all_done(store: hr.Store | RemoteStore) -> list[tuple[str, bytes]]:
    """What was put, and is worked on here."""
    if not store.has_journal("jobs"):
        return []
    with store.journal("jobs") as journal:
        taken = journal.next_batch(1_000_000, delete=True)
    return list(zip(taken["resource"].to_pylist(), taken["value"].to_pylist(), strict=True))


def as_job(n: int) -> tuple[str, bytes]:
    return f"n:{n}", f"row {n}".encode()


@pytest.mark.skipif(not CAMPAIGN, reason="some minutes: make campaign runs it")
def test_drivers_and_their_node_are_killed_at_any_moment(spark: SparkSession, place: Path) -> None:
    """The same through a node, which is killed too, sometimes while a driver is at work."""
    chance, kills, rows, total = Random(), 10, 100, 10_000
    node = Daemon(place / "data")
    where, checkpoint, done = f"http://127.0.0.1:{node.port}", place / "checkpoint", list[tuple[str, bytes]]()
    try:
        with hr.connect(where) as remote:
            publish(remote, "in", (0, total))  # type: ignore[arg-type]
        for _ in range(kills):
            process = driver.start(where, checkpoint, rows)
            try:
                with hr.connect(where) as remote:
                    begun = landed(remote)
                    wait_for(process, remote, min(total, begun + rows * chance.randint(1, 3)))
                if chance.random() < 0.7:
                    node.kill()
                    time.sleep(chance.random())
                    node.start()
                    with hr.connect(where) as remote:
                        wait_for(process, remote, min(total, landed(remote) + rows))
                time.sleep(chance.random() * 0.5)  # anywhere in the midst of a batch
            finally:
                driver.kill_all(process)
            with hr.connect(where) as remote:
                done += all_done(remote)
                assert sorted(done) == sorted(as_job(n) for n in range(len(done))), "each of a prefix once"
        reading = spark.readStream.format("headrace").options(url=where, stream="in")
        for frame, to in (
            (driver.doubled(reading.load()), {"stream": "out"}),
            (driver.as_jobs(reading.load()), {"journal": "jobs"}),
        ):
            writing = frame.writeStream.format("headrace").options(url=where, **to)
            writing = writing.option("checkpointLocation", f"{checkpoint}-{to.get('journal', 'out')}")
            writing.trigger(availableNow=True).start().awaitTermination()
        with hr.connect(where) as remote:
            assert sorted(done + all_done(remote)) == sorted(as_job(n) for n in range(total))
    finally:
        node.kill()
    with hr.open(place / "data") as store:
        assert entries(store, "out") == [{"n": n * 2, "text": f"row {n}"} for n in range(total)]
        assert files(store.path / "staging") == []


# --- a full disk


@pytest.fixture
def small(place: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    path = place / "small"
    path.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def large(first: int, stop: int) -> pa.RecordBatch:
    return numbers(first, stop).set_column(1, "text", [["x" * 1000] * (stop - first)]).to_batches()[0]


def test_a_full_disk_at_the_landing_leaves_the_stream_as_it_was(small: Path) -> None:
    with hr.open(small / "data") as store:
        made = target(store)
        sink = StreamSink(made)
        sink.commit(staged(made, 0, [(0, 10)]), 0)
        ballast = small / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        runs = made.stage("q/1", iter([large(10, 2000)]))  # 2 MB: a second copy does not fit
        messages = staged(made, 1, [])
        messages[0] = type(messages[0])("q", 1, 0, runs)
        with pytest.raises(DiskFull):
            sink.commit(messages, 1)
        assert column(store, "out") == list(range(10))
        ballast.unlink()
        sink.commit(messages, 1)
        assert column(store, "out") == list(range(2000))
        with store.stream("out") as stream:
            assert stream.verify().ok


def test_a_full_disk_under_a_query_is_told_and_it_goes_on_when_there_is_room(
    spark: SparkSession, small: Path, place: Path
) -> None:
    with hr.open(place / "data") as source, hr.open(small / "data") as store:
        publish(source, "in", (0, 20))
        frame = read_stream(spark, source, "in").selectExpr("n", "repeat('x', 100000) AS text")
        (ballast := small / "ballast").write_bytes(bytes(5 << 19))
        with pytest.raises(Exception, match=r"(?i)no space|full"):
            write_stream(frame, store, "out", place / "checkpoint", orderBy="n")
        assert column(store, "out") == []
        ballast.unlink()
        shutil.rmtree(store.path / "staging", ignore_errors=True)  # what failed attempts left takes room, too
        write_stream(frame, store, "out", place / "checkpoint", orderBy="n")
        assert column(store, "out") == list(range(20))
