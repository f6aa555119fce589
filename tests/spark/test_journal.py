"""Journals on Spark: jobs and history as rows, rows as jobs, and dead jobs put back."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.cli.running import headrace
from tests.spark.queries import publish, read_stream

import headrace as hr
from headrace.journal import Journal, JournalTaken
from headrace.kernel.errors import BadSettings, NotFound, SchemaMismatch
from headrace.spark import landing
from headrace.spark.datasource import HeadraceSource
from headrace.spark.journal_sink import jobs_target
from headrace.spark.redrive import redrive
from headrace.spark.sink import BatchSink, Staged, StreamSink
from headrace.spark.types import spark_schema
from journal.test_copy import copied

NOON = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def pages(store: hr.Store) -> Iterator[Journal]:
    """A journal with a leased job, a dead one and two pending ones; it stays open."""
    with store.journal("pages", hr.JournalSettings(max_attempts=1, history="forever")) as journal:
        journal.put("https://a.org/dead", value="http://x", priority=1)
        dead = journal.next()
        assert dead
        dead.fail()
        journal.put("https://a.org/leased", value=b"\xff", priority=2)
        assert journal.next(lease="1h")
        journal.put("plain", value=7, domain="mine")
        journal.put("https://b.org/later", after="1h")
        journal.set("k", "v")
        yield journal


def source(store: hr.Store, **options: str) -> HeadraceSource:
    return HeadraceSource({"path": str(store.path), "journal": "pages", **options})


def rows(store: hr.Store, **options: str) -> list[dict[str, Any]]:
    """What Spark would get, without Spark."""
    made = source(store, **options)
    reader = made.reader(made.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


# --- with Spark


def test_jobs_and_their_history_are_tables_while_somebody_works(
    spark: SparkSession, store: hr.Store, pages: Journal
) -> None:
    reading = spark.read.format("headrace").options(path=str(store.path), journal="pages")
    frame = reading.option("view", "journal").load()
    assert [tuple(row) for row in frame.select("resource", "state", "text").orderBy("id").collect()] == [
        ("https://a.org/dead", "dead", "http://x"),
        ("https://a.org/leased", "leased", None),
        ("plain", "pending", None),
        ("https://b.org/later", "pending", None),
    ]
    assert frame.where("state = 'pending' AND age < 0").count() == 1
    pages.close()  # the rest of its events is in the log now
    history = reading.option("view", "history").load()
    kinds = [row.kind for row in history.where("key = 'https://a.org/dead'").collect()]
    assert kinds == ["put", "take", "dead"]
    assert history.where("kind = 'set'").first().text == "v"


def test_a_frame_is_put_and_a_query_puts_each_batch_once(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    frame = spark.range(100, numPartitions=3).selectExpr(
        "concat('https://a.org/', id) AS resource",
        "CAST(id AS INT) AS priority",
        "timestamp'2026-07-01 12:00:00' AS due",
        "concat('value ', id) AS value",
    )
    where = {"path": str(store.path), "journal": "pages"}
    frame.write.format("headrace").options(**where).mode("append").save()
    with store.journal("pages") as journal:
        jobs = {job.resource: job for job in journal.jobs()}
    assert len(jobs) == 100
    assert (jobs["https://a.org/7"].priority, jobs["https://a.org/7"].value) == (7, "value 7")
    assert jobs["https://a.org/7"].due_us == int(NOON.timestamp() * 1e6)
    with pytest.raises(Exception, match="a job has no 'more'"):
        frame.selectExpr("resource", "1 AS more").write.format("headrace").options(**where).mode(
            "append"
        ).save()

    publish(store, "in", (0, 50))
    for _ in range(2):  # the second run has nothing to do
        reading = read_stream(spark, store, "in", maxRowsPerTrigger="20")
        query = (
            reading.selectExpr("concat('n:', n) AS resource", "'s' AS domain")
            .writeStream.format("headrace")
            .options(**where, checkpointLocation=str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        with store.journal("pages") as journal:
            left = len(journal.next_batch(1000, "s", delete=True))
        assert left == (50 if _ == 0 else 0)
    assert not [each for each in (store.path / "staging").rglob("*") if each.is_file()]

    history = spark.readStream.format("headrace").options(**where, view="history").load()
    counting = history.groupBy("kind").count().writeStream.format("memory").queryName("kinds")
    counting.outputMode("complete").trigger(availableNow=True).start().awaitTermination()
    counts = {row["kind"]: row["count"] for row in spark.sql("SELECT * FROM kinds").collect()}
    assert (counts["put"], counts["done"]) == (150, 50)


def test_dead_jobs_are_chosen_and_repaired_by_sql_and_put_back_once(
    spark: SparkSession, store: hr.Store
) -> None:
    with store.journal("pages", hr.JournalSettings(max_attempts=1)) as journal:
        for n in range(10):
            journal.put(f"http://a.org/{n}", value=f"v{n}" if n % 2 else n, priority=n)
        for _ in range(9):
            job = journal.next()
            assert job
            job.fail()

    def run(**options: Any) -> Any:
        return redrive(spark, store, "pages", **options)

    repair = {"resource": "replace(resource, 'http:', 'https:')", "priority": "priority + 100"}
    tried = run(where="priority < 4", repair=repair, dry_run=True)
    assert [(job.was, job.resource) for job in tried.chosen][:1] == [("http://a.org/0", "https://a.org/0")]
    assert (len(tried.chosen), tried.put_back) == (4, 0)
    assert run(where="priority < 4", repair=repair).put_back == 4
    assert run(where="priority < 4", repair=repair).put_back == 0, "they are not dead any more"
    assert run(where="text = 'v5'", repair={"value": "concat(text, '!')"}).put_back == 1
    assert run(where="id < 0").put_back == 0
    with store.journal("pages") as journal:
        jobs = {job.resource: (job.state, job.priority, job.value, job.attempts) for job in journal.jobs()}
    assert jobs["https://a.org/0"] == ("pending", 100, 0, 0), "its value has kept its type"
    assert jobs["https://a.org/3"] == ("pending", 103, "v3", 0)
    assert jobs["http://a.org/5"] == ("pending", 5, "v5!", 0)
    assert jobs["http://a.org/4"][0] == "dead"
    assert len(jobs) == 10
    for wrong, sentence in (
        ({"repair": {"resource": "CAST(NULL AS STRING)"}}, "would have the resource None"),
        ({"repair": {"priority": "999"}}, "would have the priority 999"),
        ({"repair": {"value": "array(1)"}}, "would have a value of type list"),
        ({"where": "nope = 1"}, "nope"),
    ):
        with pytest.raises(Exception, match=sentence):
            run(**wrong)
    with pytest.raises(BadSettings, match="'due' cannot be repaired"):
        run(repair={"due": "now()"})

    words = ("redrive", "pages", "--where", "id = 4", "--set", "priority=1", "--store", store.path)
    tried = headrace("spark", *words, "--dry-run")
    assert tried.code == 0, tried
    assert tried.lines[-1] == "1 dead job would be put back"
    done = headrace("spark", *words, "--json")
    assert done.json["jobs"] == [
        {"id": 4, "resource": "http://a.org/4", "becomes": "http://a.org/4", "priority": 1, "value": 4}
    ]
    assert headrace("spark", *words).text == "put 0 of 0 dead jobs back\n"


def test_a_dead_job_whose_resource_is_no_text_is_put_back_under_its_own_name(
    spark: SparkSession, store: hr.Store
) -> None:
    with store.journal("pages", hr.JournalSettings(max_attempts=1)) as journal:
        for resource in ("caf\udce9", "tea"):
            journal.put(resource, domain="shop")
            journal.fail(journal.next())
    repair = {"resource": "replace(resource, 'tea', 'coffee')"}
    assert redrive(spark, store, "pages", repair=repair).put_back == 2
    with store.journal("pages") as journal:
        jobs = {(job.resource, job.domain, job.state) for job in journal.jobs()}
    assert jobs == {("caf\udce9", "shop", "pending"), ("coffee", "", "pending")}


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("nope",), 1, "there is no journal 'nope'"),
        (("pages", "--set", "due=now()"), 1, "'due' cannot be repaired"),
        (("pages", "--set", "priority"), 2, "is not COLUMN=SQL"),
        (("pages", "--set", "value=1", "--set", "value=2"), 2, "is set twice"),
    ],
)
def test_what_cannot_be_redriven_is_told_before_spark_starts(
    store: hr.Store, pages: Journal, words: tuple[str, ...], code: int, sentence: str
) -> None:
    outcome = headrace("spark", "redrive", *words, "--store", store.path)
    assert (outcome.code, outcome.out) == (code, b"")
    assert sentence in outcome.err


# --- without Spark: each step by itself


def test_a_job_is_told_with_all_that_is_known_of_it(store: hr.Store, pages: Journal) -> None:
    dead, leased, plain, later = sorted(rows(store), key=lambda row: row["id"])
    assert (dead["state"], dead["type"], dead["value"], dead["text"]) == (
        "dead",
        "string",
        b"http://x",
        "http://x",
    )
    assert dead["died"] is not None
    assert dead["lease_until"] is None
    assert (leased["state"], leased["attempts"], leased["value"], leased["text"]) == (
        "leased",
        1,
        b"\xff",
        None,
    )
    assert leased["lease_until"] > leased["due"]
    assert (plain["domain"], plain["type"], plain["priority"]) == ("mine", "integer", 128)
    assert (later["age"] < 0, later["type"], later["value"]) == (True, "void", None)


def test_columns_may_be_chosen(store: hr.Store, pages: Journal) -> None:
    assert [list(row) for row in rows(store, columns="state,id")] == [["state", "id"]] * 4
    pages.close()
    (first, *_) = rows(store, view="history", columns="kind,text", withIndex="true")
    assert first == {"kind": "put", "text": "http://x", "_index": 0}
    assert rows(store, view="history", startIndex="1", endIndex="2", columns="kind") == [{"kind": "take"}]


def test_history_shows_keys_that_are_no_text(store: hr.Store) -> None:
    with store.journal("pages") as journal:
        journal.set("\udcff", 1)
        journal.set("grün", 2)
        journal.link("grün", "green")
    found = rows(store, view="history")
    assert [(row["kind"], row["key"], row["other"]) for row in found] == [
        ("set", "\ufffd", None),
        ("set", "grün", None),
        ("link", "grün", "green"),
    ]


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"journal": "nope"}, NotFound, r"no journal 'nope' .*\(there are: pages\)"),
        ({"journal": "nope", "view": "history"}, NotFound, "no journal 'nope'"),
        ({"stream": "s"}, BadSettings, "stream or journal, not both"),
        ({"view": "nope"}, BadSettings, "no view 'nope'"),
        ({"view": "history", "startKey": "1"}, BadSettings, "ordered by index"),
        ({"columns": "size"}, BadSettings, "no column 'size'"),
    ],
)
def test_what_is_not_there_is_told(
    store: hr.Store, pages: Journal, options: dict[str, str], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        rows(store, **options)


def test_only_history_is_a_stream_and_it_waits_for_nobody(store: hr.Store, pages: Journal) -> None:
    made = source(store)
    with pytest.raises(BadSettings, match=r"use spark\.read"):
        made.streamReader(made.schema())
    made = source(store, view="history", position="me")
    reader = made.streamReader(made.schema())
    with pytest.raises(BadSettings, match="setting 'history'"):
        reader.initialOffset()


def target(store: hr.Store, schema: pa.Schema, **options: str) -> Any:
    return jobs_target(source(store, **options)._options, spark_schema(schema))


def batch(*resources: str, **columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"resource": list(resources), **columns})


def put(store: hr.Store, *batches: pa.RecordBatch, **options: str) -> None:
    """What `df.write` does, each batch being a task."""
    sink = BatchSink(target(store, batches[0].schema, **options))
    sink.commit([sink.write(iter([each])) for each in batches])


def resources(store: hr.Store) -> list[str]:
    with store.journal("pages") as journal:
        return sorted(job.resource for job in journal.jobs())


def test_a_batch_that_is_there_is_not_put_again(store: hr.Store) -> None:
    made = target(store, batch("a").schema)
    sink = StreamSink(made)

    def staged(number: int, *resources: str) -> list[Any]:
        return [Staged("q", number, 0, made.stage(f"q/{number}", iter([batch(*resources)])))]

    messages = staged(0, "a", "b")
    sink.commit(messages, 0)
    with store.journal("pages") as journal:
        assert len(journal.next_batch(10, delete=True)) == 2
    sink.abort(messages, 0)
    sink.commit(staged(0, "a", "b"), 0)
    assert resources(store) == [], "it was worked on, and is not put again"
    sink.commit(staged(1, "a"), 1)
    assert resources(store) == ["a"]
    sink.commit([Staged("q", 2, 0, ())], 2)
    assert resources(store) == ["a"]
    assert not [each for each in made.area.path.rglob("*") if each.is_file()]


def test_a_write_with_an_id_is_put_once(store: hr.Store) -> None:
    for _ in range(2):
        put(store, batch("a"), batch("b"), writeId="monday")
        with store.journal("pages") as journal:
            left = len(journal.next_batch(10, delete=True))
        assert left == (2 if _ == 0 else 0)
    put(store, batch("a"), writeId="tuesday")
    put(store, batch("a"))
    assert resources(store) == ["a"]


def test_columns_that_are_null_or_missing_have_defaults(store: hr.Store) -> None:
    put(
        store,
        batch(
            "https://a.org/1",
            "https://a.org/2",
            priority=[None, 3],
            domain=["mine", None],
            due=pa.array([None, NOON], pa.timestamp("us", "UTC")),
            value=[None, b"\xff"],
        ),
    )
    with store.journal("pages") as journal:
        first, second = sorted(journal.jobs(), key=lambda job: job.resource)
    assert (first.domain, first.priority, first.value) == ("mine", 128, None)
    assert first.due_us > 0
    assert (second.domain, second.priority, second.value) == ("a.org", 3, b"\xff")
    assert second.due_us == int(NOON.timestamp() * 1e6)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (batch("", "a"), "'resource' may not be null or empty"),
        (batch("a", priority=[256]), "'priority' is 0 to 255, and is 256"),
        (batch("a", priority=["high"]), "'priority' is string; a job's is int64"),
        (batch("a", value=[[1]]), "a job's value is text, bytes"),
        (batch("a", due=[7]), "'due' is int64; a job's is timestamp"),
        (pa.RecordBatch.from_pydict({"value": ["x"]}), "a job needs a resource"),
    ],
)
def test_rows_that_are_no_jobs_are_refused_with_nothing_changed(
    store: hr.Store, columns: pa.RecordBatch, sentence: str
) -> None:
    put(store, batch("there"))
    with pytest.raises(SchemaMismatch, match=sentence):
        put(store, columns)
    assert resources(store) == ["there"]


def test_a_journal_that_is_in_use_is_told(
    store: hr.Store, pages: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "_LOCK_WAIT_S", 0.0)
    with pytest.raises(JournalTaken, match="headrace journal serve"):
        put(store, batch("a"))


def test_a_journal_is_only_appended_to(store: hr.Store) -> None:
    made = source(store)
    for method in (made.writer, made.streamWriter):
        with pytest.raises(BadSettings, match="append"):
            method(StructType(), True)


def test_a_copy_of_a_journal_is_a_table_too(store: hr.Store, pages: Journal, tmp_path: Path) -> None:
    with hr.open(tmp_path / "spare") as spare:
        copied(pages, spare.path / "journals" / "pages")
        assert rows(spare, view="history") == rows(store, view="history")
        jobs = [[(row["id"], row["state"]) for row in rows(each, view="journal")] for each in (spare, store)]
        assert jobs[0] == jobs[1]
        assert len(jobs[0]) == 4
