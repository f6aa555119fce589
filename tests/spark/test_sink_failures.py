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


def wait_for(process: subprocess.Popen[bytes], store: hr.Store, rows: int) -> None:
    """Until the driver has landed so many rows."""
    end = time.monotonic() + 3 * PATIENCE_S
    while landed(store) < rows:
        if process.poll() is not None:
            raise AssertionError(
                f"the driver has ended: {process.stderr and process.stderr.read()[-3000:]!r}"
            )
        assert time.monotonic() < end, f"the driver landed {landed(store)} rows of {rows}"
        time.sleep(0.01)


def landed(store: hr.Store) -> int:
    if "out" not in store.streams():
        return 0
    with store.stream("out") as stream:
        return stream.next_index


def test_drivers_that_are_killed_at_any_moment_and_another_beside_them(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    """kill -9 for JVM, driver and workers; the last one meets a second driver before it dies."""
    chance = Random()
    kills, rows = (20, 100) if CAMPAIGN else (1, 100)
    publish(store, "in", (0, total := kills * 2500))
    checkpoint = place / "checkpoint"
    frame = driver.doubled(read_stream(spark, store, "in", maxRowsPerTrigger="2000"))
    for life in range(kills):
        process = driver.start(store.path, checkpoint, rows)
        try:
            wait_for(process, store, landed(store) + rows * chance.randint(2, 6))
            time.sleep(chance.random() * 0.5)  # anywhere in the midst of a batch
            if life == kills - 1:
                with suppress(PySparkException):  # one of two may be told that there is another
                    write_stream(frame, store, "out", checkpoint)
        finally:
            driver.kill_all(process)
        assert column(store, "out") == [n * 2 for n in range(landed(store))], "a prefix, whole and in order"
    write_stream(frame, store, "out", checkpoint)
    assert entries(store, "out") == [{"n": n * 2, "text": f"row {n}"} for n in range(total)]
    assert files(store.path / "staging") == []


@pytest.mark.skipif(not CAMPAIGN, reason="some minutes: make campaign runs it")
@pytest.mark.parametrize("through", ["path", "node"])
def test_drivers_that_are_killed_put_each_job_once(spark: SparkSession, place: Path, through: str) -> None:
    """What was put is worked on whenever no driver runs. A node is killed, too, while one is at work."""
    chance, kills, rows, total = Random(), int(os.environ.get("HEADRACE_KILLS", "5")), 100, 5000
    with hr.open(place / "data") as store:
        publish(store, "in", (0, total))
    node = Daemon(place / "data") if through == "node" else None
    where = str(place / "data") if node is None else f"http://127.0.0.1:{node.port}"
    done = list[tuple[str, bytes]]()
    try:
        for _ in range(kills):
            process = driver.start(where, place / "checkpoint", rows, "jobs")
            try:
                wait_for_batches(process, place / "checkpoint", chance.randint(1, 3))
                if node is not None:
                    node.kill()
                    time.sleep(chance.random())
                    node.start()
                    wait_for_batches(process, place / "checkpoint", 1)
                time.sleep(chance.random() * 0.5)  # anywhere in the midst of a batch
            finally:
                driver.kill_all(process)
            done += all_done(where)
            assert sorted(done) == sorted(as_job(n) for n in range(len(done))), "each of a prefix once"
        option = {"path" if node is None else "url": where}
        reading = spark.readStream.format("headrace").options(**option, stream="in").load()
        writing = driver.as_jobs(reading).writeStream.format("headrace").trigger(availableNow=True)
        writing.options(
            **option, journal="jobs", checkpointLocation=str(place / "checkpoint")
        ).start().awaitTermination()
        assert sorted(done + all_done(where)) == sorted(as_job(n) for n in range(total))
    finally:
        if node is not None:
            node.kill()
    assert files(place / "data" / "staging") == []


def wait_for_batches(process: subprocess.Popen[bytes], checkpoint: Path, more: int) -> None:
    """Until Spark has noted so many more batches."""
    end, commits = time.monotonic() + 10 * PATIENCE_S, checkpoint / "commits"
    begun = len(list(commits.glob("[0-9]*")))
    while len(list(commits.glob("[0-9]*"))) < begun + more:
        if process.poll() is not None:
            raise AssertionError(
                f"the driver has ended: {process.stderr and process.stderr.read()[-3000:]!r}"
            )
        assert time.monotonic() < end, "the driver does nothing"
        time.sleep(0.01)


def all_done(where: str) -> list[tuple[str, bytes]]:
    """What was put, and is worked on here."""
    with hr.connect(where) if where.startswith("http") else hr.open(where) as store:
        if not store.has_journal("jobs"):
            return []
        with store.journal("jobs") as journal:
            taken = journal.next_batch(100_000, delete=True)
    return list(zip(taken["resource"].to_pylist(), taken["value"].to_pylist(), strict=True))


def as_job(n: int) -> tuple[str, bytes]:
    return f"n:{n}", f"row {n}".encode()


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
