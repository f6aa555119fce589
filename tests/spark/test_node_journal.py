"""Jobs that Spark puts into a journal through a node: all of a batch, once, whatever is asked again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.server.http_node import Daemon, Served, ipc
from tests.spark.test_journal import NOON, batch
from tests.spark.test_node import node, url
from tests.spark.test_sink import files

import headrace as hr
from headrace.kernel.errors import NotFound, SchemaMismatch
from headrace.spark.datasource import HeadraceSource
from headrace.spark.sink import BatchSink, Staged, StreamSink
from headrace.spark.types import spark_schema

__all__ = ["node"]


def source(where: str, **options: str) -> HeadraceSource:
    return HeadraceSource({"url": where, "journal": "pages", "awaySeconds": "20", **options})


def target(where: str, schema: pa.Schema | None = None, **options: str) -> Any:
    sink = source(where, **options).streamWriter(spark_schema(schema or batch("a").schema), overwrite=False)
    assert isinstance(sink, StreamSink)
    return sink._target


def staged(made: Any, number: int, *tasks: list[str], query: str = "q") -> list[Any]:
    return [
        Staged(query, number, at, made.stage(f"{query}/{number}", iter([batch(*names)])))
        for at, names in enumerate(tasks)
    ]


def taken(where: str) -> list[str]:
    """The resources of all jobs, which are done then."""
    with hr.connect(where) as store:
        return sorted(store.journal("pages").next_batch(1000, delete=True)["resource"].to_pylist())


def test_a_batch_is_put_once_whatever_is_asked_again(node: Served) -> None:
    where = url(node.ask)
    made = target(where)
    sink = StreamSink(made)
    messages = staged(made, 0, ["a", "b"], ["c"])
    staged(made, 0, ["a"])  # by an attempt that failed
    sink.commit(messages, 0)
    assert taken(where) == ["a", "b", "c"]
    assert files(node.store.path / "staging") == []
    sink.abort(messages, 0)  # Spark may say so after a commit that is on the disk
    sink.commit(messages, 0)  # and may ask again, the runs being gone
    sink.commit(staged(made, 0, ["a", "b"], ["c"]), 0)
    assert taken(where) == [], "they were worked on, and are not put again"
    sink.commit(staged(made, 1, ["a"]), 1)
    sink.commit(staged(made, 2, []), 2)
    sink.commit(staged(made, 0, ["other"], query="r"), 0)
    assert taken(where) == ["a", "other"]
    lost = staged(made, 3, ["x"])
    sink.abort(lost, 3)
    with pytest.raises(NotFound, match=r"is not staged here \(any more\)"):
        sink.commit(lost, 3)
    assert files(node.store.path / "staging") == []


def test_whole_writes_are_put_once_with_an_id_and_without(node: Served) -> None:
    where = url(node.ask)

    def write(*tasks: str, **options: str) -> tuple[BatchSink, list[Any]]:
        made = BatchSink(target(where, **options))
        messages = [made.write(iter([batch(name)])) for name in tasks]
        made.commit(messages)
        return made, messages

    first, messages = write("a", "b")
    write("c")
    first.commit(messages)  # its answer was lost: it is asked for again, behind another one
    assert taken(where) == ["a", "b", "c"]
    first.commit(messages)
    write("d", writeId="monday")
    assert taken(where) == ["d"]
    write("d", writeId="monday")
    assert taken(where) == []
    given_up = BatchSink(target(where))
    given_up.write(iter([batch("x")]))
    given_up.abort([])
    assert files(node.store.path / "staging") == []


@pytest.mark.parametrize("died", ["before it was put", "before what was staged is removed"])
def test_a_node_that_died_while_a_write_landed_knows_whether_it_was_put(node: Served, died: str) -> None:
    """Another write comes before the first is asked for again."""
    where, area = url(node.ask), node.store.path / "staging" / ".journal-pages"
    first, second = BatchSink(target(where)), BatchSink(target(where))
    messages: list[Any] = [first.write(iter([batch("a")]))]
    (place,) = area.iterdir()
    shutil.copytree(place, left := area.parent / "left")
    if died == "before what was staged is removed":
        first.commit(messages)
    else:
        shutil.rmtree(place)
    shutil.move(left, place)
    (place / "1.ticket").touch()
    second.commit([second.write(iter([batch("b")]))])
    first.commit(messages)
    assert taken(where) == ["a", "b"]
    first.commit(messages)
    assert taken(where) == []
    assert files(node.store.path / "staging") == []


def test_values_priorities_and_times_arrive_as_over_a_path(node: Served) -> None:
    rows = batch(
        "https://a.org/1",
        "https://a.org/2",
        priority=[None, 3],
        domain=["mine", None],
        due=pa.array([None, NOON], pa.timestamp("us", "UTC")),
        value=[None, b"\xff"],
    )
    made = BatchSink(target(url(node.ask), rows.schema))
    made.commit([made.write(iter([rows]))])
    with hr.connect(url(node.ask)) as store:
        first, second = sorted(store.journal("pages").jobs(), key=lambda job: job.resource)
    assert (first.domain, first.priority, first.value) == ("mine", 128, None)
    assert (second.domain, second.priority, second.value) == ("a.org", 3, b"\xff")
    assert second.due_us == int(NOON.timestamp() * 1e6)
    with pytest.raises(SchemaMismatch, match="may not be null or empty"):
        BatchSink(target(url(node.ask))).write(iter([batch("")]))
    with pytest.raises(SchemaMismatch, match="a job has no 'more'"):
        target(url(node.ask), batch("a", more=[1]).schema)


def test_what_is_no_run_of_jobs_is_refused(node: Served) -> None:
    target(url(node.ask))
    path = "/journals/pages/staged/q/0/" + "a" * 32
    table = ipc(pa.table({"resource": ["a"]}))
    assert node.ask("PUT", path, table, {"Headrace-Checksum": "0" * 16}).error == "refused"
    for wanted in (
        {"query": "../x", "runs": []},
        {"query": "q", "runs": ["../../journals/pages/log/meta.json"]},
        {"query": "q", "runs": [], "batch": -1},
        {"query": "q", "runs": [], "whole": True, "batch": 2},
        {"query": "q", "runs": [], "whole": True, "write_id": "x" * 200},
        {"query": "q", "runs": [], "head": 5},
    ):
        assert node.ask("POST", "/journals/pages/land", wanted).error in {"bad_name", "refused"}, wanted
    assert node.ask("POST", "/journals/nope/land", {"query": "q", "runs": []}).error == "not_found"
    assert files(node.store.path / "staging") == []


def test_a_node_that_is_killed_between_staging_and_landing_comes_back(place: Path) -> None:
    daemon = Daemon(place / "data")
    try:
        where = url(daemon.ask)
        made = target(where)
        messages = staged(made, 0, [f"r{n:03d}" for n in range(100)])
        daemon.kill()
        daemon.start()
        StreamSink(made).commit(messages, 0)
        daemon.kill()
        daemon.start()
        StreamSink(made).commit(messages, 0)
        assert taken(where) == [f"r{n:03d}" for n in range(100)]
    finally:
        daemon.kill()
