"""What Spark raises, in plain words: over real exceptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError

import headrace as hr
from headrace.kernel.errors import (
    BadSettings,
    DiskFull,
    HeadraceError,
    NoPermission,
    NotFound,
    SchemaMismatch,
)
from headrace.log.damage import Damage, DamagedEntries
from headrace.spark import NotTheOwner
from headrace.spark.explain import SparkFailed, explain, plain_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def explained(attempt: Callable[[], Any]) -> HeadraceError:
    with pytest.raises(Exception) as raised:
        attempt()
    error = explain(raised.value)
    for noise in ("Traceback", "\n", "\tat ", "SQLSTATE", "py4j", "org.apache", "pyspark"):
        assert noise not in str(error)
    return error


def in_a_worker(
    make: Callable[[], Exception],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raise make()
            yield batch

    return work


def raised_in_a_worker(spark: SparkSession, make: Callable[[], Exception]) -> HeadraceError:
    return explained(lambda: spark.range(1).mapInArrow(in_a_worker(make), "id long").collect())


def read(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("headrace").options(**options).load()


def test_errors_of_the_source_are_what_they_were(spark: SparkSession, store: hr.Store) -> None:
    path = str(store.path)
    store.stream("n", pa.schema([("n", pa.int64())]))
    missing = explained(lambda: read(spark, path=path, stream="nope"))
    assert isinstance(missing, NotFound)
    assert str(missing).startswith("there is no stream 'nope'")
    assert isinstance(explained(lambda: read(spark, path=path + "x", stream="n")), NotFound)
    assert isinstance(explained(lambda: read(spark, path=path, stream="n", startIndex="x")), BadSettings)
    assert isinstance(explained(lambda: read(spark, path=path, stream="n", columns="x")), SchemaMismatch)


def test_errors_of_the_sink_are_what_they_were(spark: SparkSession, store: hr.Store) -> None:
    store.stream("n", pa.schema([("n", pa.int64())]))
    wrong = spark.range(3).write.format("headrace").options(path=str(store.path), stream="n").mode("append")
    error = explained(lambda: wrong.save())
    assert isinstance(error, SchemaMismatch)
    assert str(error) == "the stream has no field 'id': it has n"


def test_errors_of_a_streaming_query_are_what_they_were(
    spark: SparkSession, store: hr.Store, place: Path
) -> None:
    with store.stream("n", pa.schema([("n", pa.int64())])).publisher() as publisher:
        publisher.publish_batch(pa.record_batch({"n": [1]}))

    def copy(checkpoint: str) -> None:
        source = {"path": str(store.path), "stream": "n"}
        sink = {"path": str(store.path), "stream": "copy", "checkpointLocation": str(place / checkpoint)}
        writer = spark.readStream.format("headrace").options(**source).load().writeStream.format("headrace")
        writer.options(**sink).trigger(availableNow=True).start().awaitTermination()

    copy("one")
    error = explained(lambda: copy("two"))
    assert isinstance(error, NotTheOwner)
    assert str(error).startswith("the stream 'copy' is written by another query")


def test_errors_of_workers_are_what_they_were(spark: SparkSession) -> None:
    assert str(raised_in_a_worker(spark, lambda: NotFound("there is no such thing: look again"))) == (
        "there is no such thing: look again"
    )
    damaged = raised_in_a_worker(spark, lambda: DamagedEntries("d", Damage("body", "f", 1, 2, 3, 4, "torn")))
    assert isinstance(damaged, DamagedEntries)
    assert damaged.code == "damaged_entries"
    assert "entries 3 to 3 are lost" in str(damaged)


def test_errors_of_the_users_code_are_told_with_their_place(spark: SparkSession) -> None:
    error = raised_in_a_worker(spark, lambda: ValueError("one\ntwo"))
    assert isinstance(error, SparkFailed)
    assert str(error).startswith(
        "the code that Spark runs failed with ValueError: one (test_explain.py, line "
    )
    assert "AssertionError" in str(raised_in_a_worker(spark, AssertionError))


@pytest.mark.parametrize(("number", "kind"), [(28, DiskFull), (13, NoPermission)])
def test_errors_of_the_disk_in_workers_are_ours(
    spark: SparkSession, number: int, kind: type[HeadraceError]
) -> None:
    assert isinstance(raised_in_a_worker(spark, lambda: OSError(number, "it says", "a/path")), kind)


def test_errors_of_spark_itself_keep_one_sentence(spark: SparkSession, place: Path) -> None:
    column = explained(lambda: spark.range(1).select("nope"))
    assert "with name `nope` cannot be resolved" in str(column)
    assert "Syntax error at or near 'selec'" in str(explained(lambda: spark.sql("selec 1")))
    assert "Path does not exist" in str(explained(lambda: spark.read.parquet(str(place / "nope"))))
    (place / "file").touch()
    write = spark.range(1).write
    assert isinstance(explained(lambda: write.parquet(str(place / "file" / "inside"))), SparkFailed)


def test_a_dead_jvm_is_told() -> None:
    assert "Java process has ended" in str(explain(Py4JNetworkError("Answer from Java side is empty")))
    with pytest.raises(SparkFailed, match="Java process has ended"), plain_words():
        raise ConnectionRefusedError(111, "Connection refused")


def test_what_is_ours_already_stays_and_what_is_not_sparks_passes() -> None:
    error = NotFound("there is none")
    assert explain(error) is error
    with pytest.raises(KeyError), plain_words():
        raise KeyError("a bug of ours")
