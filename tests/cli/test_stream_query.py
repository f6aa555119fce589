"""`headrace stream query`: SQL over a stream. What DuckDB can do is its own affair; these test the seam."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from tests.cli.streaming import Streams, lines_of

import headrace as hr
from headrace.stream.query import StreamDataset, query


@pytest.fixture
def numbers(streams: Streams) -> Streams:
    """A stream `my-numbers` of 100 entries in ten batches."""
    streams("create", "my-numbers", "--field", "n:int", "--field", "at:datetime", "--field", "s:str?")
    with hr.open(streams.path) as store, store.stream("my-numbers").publisher() as publisher:
        for base in range(0, 100, 10):
            rows = pa.table(
                {
                    "n": range(base, base + 10),
                    "at": pa.array(range(base, base + 10), pa.int64()).cast(pa.timestamp("us", tz="UTC")),
                    "s": [f"s{n % 3}" for n in range(base, base + 10)],
                }
            )
            publisher.publish_batch(rows)
    return streams


def test_a_stream_is_a_table_of_its_own_name_and_of_the_name_stream(numbers: Streams) -> None:
    for table in ('"my-numbers"', "stream"):
        answer = numbers("query", "my-numbers", f"SELECT count(*) AS n, sum(n) AS sum FROM {table}")
        assert answer.lines == ['{"n":100,"sum":4950}']


def test_a_stream_can_be_joined_with_itself(numbers: Streams) -> None:
    sql = 'SELECT count(*) AS n FROM stream a JOIN "my-numbers" b ON a.n = b.n + 1'
    assert numbers("query", "my-numbers", sql).lines == ['{"n":99}']


def test_filters_on_columns_that_are_not_shown_work(numbers: Streams) -> None:
    answer = numbers(
        "query", "my-numbers", "SELECT n FROM stream WHERE s = 's2' AND n > 90 ORDER BY n", "--json"
    )
    assert answer.lines == ['{"n":92}', '{"n":95}', '{"n":98}']


def test_the_answer_is_a_table_json_lines_or_arrow(numbers: Streams) -> None:
    sql = 'SELECT s, min("at") AS first FROM stream GROUP BY s ORDER BY s'
    cells = [line.split() for line in numbers("query", "my-numbers", sql, "--format", "table").lines]
    assert ["s", "first"] in cells
    assert ["s1", "1970-01-01T00:00:00.000001Z"] in cells
    table = pa.ipc.open_stream(numbers("query", "my-numbers", sql, "--format", "arrow").out).read_all()
    assert table.schema.field("first").type == pa.timestamp("us", tz="UTC")
    assert table.column("s").to_pylist() == ["s0", "s1", "s2"]


def test_an_empty_stream_can_be_queried(streams: Streams) -> None:
    streams("create", "stream", "--field", "n:int")
    assert streams("query", "stream", "SELECT count(*) AS c FROM stream").lines == ['{"c":0}']


def test_a_wrong_query_is_one_line(numbers: Streams) -> None:
    for sql in ("SELEC", "SELECT x FROM stream", "SELECT * FROM nowhere", "SELECT n::int / 'x' FROM stream"):
        assert numbers.refused("query", "my-numbers", sql).startswith("error (bad_query): ")
    told = numbers.refused("query", "my-numbers", "SELECT n, n AS n FROM stream")
    assert "two columns 'n'" in told


def test_an_error_in_the_middle_of_the_answer_is_one_line(numbers: Streams) -> None:
    done = numbers.run(
        "query", "my-numbers", "SELECT CASE WHEN n = 99 THEN error('no') ELSE 'x' END FROM stream"
    )
    assert done.code == 1
    assert done.err.startswith("error (bad_query): ")


def test_damage_is_an_error_unless_it_is_skipped(streams: Streams) -> None:
    streams.damaged()
    sql = "SELECT count(*) AS n, count(data) AS d FROM torn"
    told = streams.refused("query", "torn", sql)
    assert told.startswith("error (damaged_entries): ")
    assert "--skip-damaged" in told
    done = streams.run("query", "torn", sql, "--skip-damaged")
    assert (done.code, done.lines) == (3, ['{"n":6,"d":6}'])


def test_without_duckdb_one_line_says_what_to_install(
    numbers: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    told = numbers.refused("query", "my-numbers", "SELECT 1")
    assert told == "error (missing_extra): queries need DuckDB: pip install 'headrace[query]'\n"


def test_only_the_columns_that_a_query_needs_are_read(
    numbers: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []
    columns = StreamDataset._columns

    def noting(self: StreamDataset, wanted: list[str] | None, condition: object) -> list[str]:
        read.append(columns(self, wanted, condition))
        return read[-1]

    monkeypatch.setattr(StreamDataset, "_columns", noting)
    numbers("query", "my-numbers", "SELECT sum(n) FROM stream")
    numbers("query", "my-numbers", "SELECT s FROM stream WHERE n = 5")
    assert read == [["n"], ["n", "s"]]


def test_a_query_from_python_answers_in_batches_and_sees_what_was_there(numbers: Streams) -> None:
    counted: list[int] = []
    with hr.open(numbers.path) as store:
        stream = store.stream("my-numbers")
        with query(stream, "SELECT n FROM stream", progress=counted.append) as result:
            numbers("publish", "my-numbers", given=lines_of([{"n": 100, "at": "2024-01-01T00:00:00Z"}]))
            assert sum(batch.num_rows for batch in result) == 100
    assert sum(counted) == 100
