"""Journals, TailProduce and jobs on a real Spark, through a real node: over TLS, with a token and its own CA.

What comes out is what plain Python makes of the same, or what the same job makes over the store's path.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from tests.cli.running import headrace
from tests.server.certificates import self_signed
from tests.server.http_node import Daemon
from tests.spark import jobs
from tests.spark.queries import CAMPAIGN, publish

import headrace as hr
from headrace.client.remote import RemoteStore
from headrace.kernel.errors import NotFound, SchemaMismatch, Unauthorized
from headrace.server.tokens import TokenFile
from headrace.spark import archive, compact, redrive, verify
from headrace.stream.errors import StreamExists
from headrace.stream.landing import NotTheOwner


class SafeNode:
    """A node that others could reach: who comes needs a token, and must trust its certificate."""

    def __init__(self, place: Path) -> None:
        self.store = place / "data"
        cert, key = self_signed(place)
        with hr.open(self.store):
            allowed = ("read:*", "publish:*", "create:*")
            self.token = TokenFile(self.store).create("spark", allowed).secret
        self.daemon = Daemon(self.store, "--tls-cert", str(cert), "--tls-key", str(key))
        self.ca = str(cert)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.daemon.port}"

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url, "token": self.token, "ca": self.ca}

    @property
    def trust(self) -> Any:
        """For those who are given the url in the place of the store."""
        return {"token": self.token, "ca": self.ca}

    @property
    def words(self) -> tuple[str, ...]:
        return ("--url", self.url, "--token", self.token, "--ca", self.ca)

    def connected(self) -> RemoteStore:
        return hr.connect(self.url, self.token, ca=self.ca)


@pytest.fixture
def safe(place: Path) -> Iterator[SafeNode]:
    node = SafeNode(place)
    try:
        yield node
    finally:
        node.daemon.kill()


def test_a_query_puts_jobs_once_and_dead_ones_are_redriven(
    spark: SparkSession, safe: SafeNode, place: Path
) -> None:
    """The node is killed, a batch is run again: each job is put once."""
    with safe.connected() as store:
        publish(store, "in", (0, 60))  # type: ignore[arg-type]
    reading = spark.readStream.format("headrace").options(**safe.options, stream="in", maxRowsPerTrigger="30")
    rows = reading.load().selectExpr("concat('n:', n) AS resource", "text AS value")

    def run() -> list[tuple[str, bytes]]:
        """What the query has put, which is done then."""
        writing = rows.writeStream.format("headrace").options(**safe.options, journal="pages")
        writing = writing.option("checkpointLocation", str(place / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()
        with safe.connected() as store:
            done = store.journal("pages").next_batch(1000, delete=True)
        return sorted(zip(done["resource"].to_pylist(), done["value"].to_pylist(), strict=True))

    assert run() == sorted((f"n:{n}", f"row {n}".encode()) for n in range(60))
    safe.daemon.kill()
    safe.daemon.start()
    for name in ("1", ".1.crc"):  # as if the driver had died before it noted it
        (place / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    assert run() == []

    with safe.connected() as store:
        journal = store.journal("dying", hr.JournalSettings(max_attempts=1))
        for n in range(4):
            journal.put(f"http://a.org/{n}", value=n)
        for _ in range(3):
            job = journal.next()
            assert job
            job.fail()
    told = headrace("spark", "redrive", "dying", "--where", "id < 2", "--set", "priority=7", *safe.words)
    assert told.lines[-1] == "put 2 of 2 dead jobs back", told
    assert redrive(spark, None, "dying", where="id < 2", **safe.options).put_back == 0
    states = spark.read.format("headrace").options(**safe.options, journal="dying").load()
    assert {(row.resource, row.state, row.priority) for row in states.collect()} == {
        ("http://a.org/0", "pending", 7),
        ("http://a.org/1", "pending", 7),
        ("http://a.org/2", "dead", 128),
        ("http://a.org/3", "pending", 128),
    }
    with pytest.raises(NotFound, match="no journal 'nope' in https://"):
        redrive(spark, safe.url, "nope", **safe.trust)
    with pytest.raises(Unauthorized):
        redrive(spark, safe.url, "dying", token="hr_wrong", ca=safe.ca)


@pytest.mark.skipif(not CAMPAIGN, reason="most of a minute: make campaign runs it")
def test_tail_produce_gives_what_plain_python_gives(spark: SparkSession, safe: SafeNode, place: Path) -> None:
    values = jobs.market(300)
    with safe.connected() as store:
        jobs.publish_market(store, values, head=80)  # type: ignore[arg-type]
    job = jobs.fills(spark, **safe.options, batch_entries=150)
    job.run(place / "checkpoint")
    with safe.connected() as store:
        stream = store.stream("fills", jobs.Fill, "at")
        assert [entry.value for entry in stream.listen()] == jobs.expected_fills(values, head=80)
        assert stream.head == 80
        jobs.publish_market(store, {"quotes": [], "trades": []}, head=200)  # type: ignore[arg-type]
    safe.daemon.kill()
    safe.daemon.start()
    commits = sorted(place.glob("checkpoint/commits/[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()  # as if the driver had died before it noted it
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    job.run(place / "checkpoint")
    with safe.connected() as store:
        stream = store.stream("fills", jobs.Fill, "at")
        assert [entry.value for entry in stream.listen()] == jobs.expected_fills(values, head=200)
        assert stream.head == 200
    with pytest.raises(NotTheOwner, match="'fills' is written by another query"):
        job.run(place / "another")


def test_streams_are_archived_verified_and_compacted(
    spark: SparkSession, safe: SafeNode, place: Path
) -> None:
    with safe.connected() as store:
        publish(store, "in", (0, 500), (500, 1000))  # type: ignore[arg-type]
        trades = [jobs.Trade(n, "AB"[n % 2], n) for n in range(50)]
        jobs.publish(store, "prices", trades, type=jobs.Trade, order_by="at")  # type: ignore[arg-type]

    done = archive(spark, safe.url, "in", to=place / "lake", rows_per_file=300, **safe.trust)
    assert (done.entries, done.next_index) == (1000, 1000)
    with safe.connected() as store:
        publish(store, "in", (1000, 1010))  # type: ignore[arg-type]
    told = headrace("spark", "archive", "in", "--to", place / "lake", *safe.words, "--json")
    assert (told.json["first_index"], told.json["entries"]) == (1000, 10)
    archived = ds.dataset(place / "lake", format="parquet", ignore_prefixes=["_"]).to_table()
    assert sorted(archived["n"].to_pylist()) == list(range(1010))

    found = verify(spark, **safe.options)
    assert found.ok
    assert {name: report.entries for name, report in found.reports.items()} == {"in": 1010, "prices": 50}
    told = headrace("spark", "verify", "in", *safe.words)
    assert (told.code, f"{safe.url}/streams/in: whole: 1,010 entries" in told.text) == (0, True), told

    made = compact(spark, safe.url, "prices", "prices-now", by="sym", **safe.trust)
    assert (made.read, made.entries) == (50, 2)
    with safe.connected() as store:
        latest = [entry.value for entry in store.stream("prices-now", jobs.Trade, "at").listen()]
    assert latest == [jobs.Trade(48, "A", 48), jobs.Trade(49, "B", 49)]
    with pytest.raises(StreamExists, match="choose another name"):
        compact(spark, safe.url, "prices", "prices-now", by="sym", **safe.trust)
    with pytest.raises(SchemaMismatch, match="has no field 'nope'"):
        compact(spark, safe.url, "prices", "other", by="nope", **safe.trust)
    told = headrace("spark", "compact", "nope", "into", "--by", "x", *safe.words)
    assert (told.code, told.out) == (1, b"")
    assert "there is no stream 'nope' at https://" in told.err
