"""Staging: what tasks leave comes out in key order, whole, whatever they were given."""

from __future__ import annotations

import datetime as dt
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.kernel.errors import Damaged, HeadraceError, KeyOrder, NotFound
from headrace.log.keys import KeyColumn
from headrace.stream import staging
from headrace.stream.staging import Run, StagingArea, read_runs, write_runs

INF = float("inf")
T0 = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
KEYS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.sampled_from([-(1 << 63), -1, 0, 1, (1 << 63) - 1]) | st.integers(-5, 5),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.sampled_from([0, 1, (1 << 64) - 1]) | st.integers(0, 5),
    pa.float64(): st.sampled_from([-INF, -5e-324, -0.0, 0.0, 5e-324, INF]) | st.floats(-3, 3),
    pa.float32(): st.sampled_from([-INF, -0.0, 0.0, INF]) | st.floats(-3, 3, width=32),
    pa.timestamp("us", "UTC"): st.integers(-9, 9).map(lambda s: T0 + dt.timedelta(seconds=s)),
    pa.timestamp("ns"): st.integers(-9, 9).map(lambda s: (T0 + dt.timedelta(seconds=s)).replace(tzinfo=None)),
}


def schema_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("key", kind, nullable=False), pa.field("row", pa.int64(), nullable=False)])


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="headrace-staging-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@st.composite
def tasks(draw: st.DrawFn) -> tuple[pa.DataType, list[list[list[Any]]]]:
    """A type of keys, and what some tasks are given: each a list of batches of keys."""
    kind = draw(st.sampled_from(list(KEYS)))
    batches = st.lists(st.lists(KEYS[kind], max_size=6), max_size=4)
    return kind, draw(st.lists(batches, max_size=4))


@given(tasks(), st.sampled_from([1, 60, 1 << 26]), st.sampled_from([1, 2, 1 << 16]))
@example((pa.float64(), [[[1.0, INF]], [[0.0, 2.0, INF]]]), 1 << 26, 1 << 16)
@example((pa.float64(), [[[0.0]], [[-0.0, -1.0]], [[0.0]]]), 1, 1)
@example((pa.int64(), [[[1, (1 << 63) - 1]], [[0, (1 << 63) - 1]]]), 1 << 26, 1)
def test_whatever_tasks_are_given_comes_out_in_key_order(given: Any, run_bytes: int, rows: int) -> None:
    """Small runs and small batches make merges of many; rows of one key keep their order inside a task."""
    kind, tasks = given
    schema = schema_of(kind)
    key = KeyColumn(schema, "key")
    numbered, rest = [], iter(range(10_000))
    for task in tasks:
        numbered.append([pa.table({"key": b, "row": [next(rest) for _ in b]}, schema=schema) for b in task])
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(staging, "_RUN_BYTES", run_bytes)
        patch.setattr(staging, "_BATCH_ROWS", rows)
        runs = [run for tables in numbered for run in write_runs(Path(folder), tables, schema, key)]
        out = pa.Table.from_batches(read_runs(runs, key), schema)
    everything = pa.concat_tables([schema.empty_table(), *(table for task in numbered for table in task)])
    assert sum(run.rows for run in runs) == everything.num_rows
    assert sorted(out.to_pylist(), key=lambda row: row["row"]) == everything.to_pylist(), "rows lost or made"
    keys = out.column("key").to_pylist()
    assert keys == sorted(keys)
    task_of = [at for at, task in enumerate(numbered) for table in task for _ in range(table.num_rows)]
    for one, other in zip(out.to_pylist(), out.to_pylist()[1:], strict=False):
        if one["key"] == other["key"] and task_of[one["row"]] == task_of[other["row"]]:
            assert one["row"] < other["row"], "rows of one key changed places"


def ints(*keys: int) -> pa.Table:
    return pa.table({"key": keys, "row": range(len(keys))}, schema=schema_of(pa.int64()))


SCHEMA = schema_of(pa.int64())
KEY = KeyColumn(SCHEMA, "key")


def test_rows_that_come_in_order_make_one_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_RUN_BYTES", 1)
    tables = [ints(at, at + 1, at + 1) for at in range(50)]
    (run,) = write_runs(folder, tables[::2], SCHEMA, KEY)
    assert (run.rows, run.first_key - (1 << 63), run.last_key - (1 << 63)) == (75, 0, 49)
    assert len(write_runs(folder, [ints(5), ints(4), ints(4), ints(3)], SCHEMA, KEY)) == 3


def test_the_merge_holds_one_batch_of_each_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by the number of runs, not by their length."""
    monkeypatch.setattr(staging, "_BATCH_ROWS", 10)
    runs = [run for at in range(3) for run in write_runs(folder, [ints(*range(at, 3000, 3))], SCHEMA, KEY)]
    read = [0]
    whole = staging._batches

    def counted(run: Run) -> Iterator[pa.RecordBatch]:
        for batch in whole(run):
            read[0] += batch.num_rows
            yield batch

    monkeypatch.setattr(staging, "_batches", counted)
    given = 0
    for batch in read_runs(runs, KEY):
        given += batch.num_rows
        assert batch.num_rows <= 10
        assert read[0] - given <= 3 * 10 + 3 * 10, "more is read ahead than a batch of each"
    assert given == read[0] == 3000


def test_without_a_key_rows_stay_in_the_order_of_tasks(folder: Path) -> None:
    runs = [run for table in (ints(3, 1), ints(2)) for run in write_runs(folder, [table], SCHEMA, None)]
    assert pa.Table.from_batches(read_runs(runs, None)).column("key").to_pylist() == [3, 1, 2]


def test_nothing_makes_no_run(folder: Path) -> None:
    assert write_runs(folder, [], SCHEMA, KEY) == []
    assert write_runs(folder, [ints(), ints()], SCHEMA, KEY) == []
    assert list(read_runs([], KEY)) == []


@pytest.mark.parametrize("bad", [float("nan"), None])
def test_a_key_that_is_none_is_refused_by_the_task(folder: Path, bad: Any) -> None:
    schema = pa.schema([pa.field("key", pa.float64())])
    table = pa.table({"key": [1.0, bad, 0.5]}, schema=schema)
    with pytest.raises(KeyOrder, match="key"):
        write_runs(folder, [table], schema, KeyColumn(schema, "key"))


# --- damage


def test_a_staged_file_that_changed_is_damage(folder: Path) -> None:
    (run,) = write_runs(folder, [ints(*range(100))], SCHEMA, KEY)
    raw = bytearray(Path(run.path).read_bytes())
    raw[len(raw) // 2] ^= 1
    Path(run.path).write_bytes(raw)
    with pytest.raises(Damaged, match="is not what was written"):
        list(read_runs([run], KEY))
    Path(run.path).write_bytes(raw[:50])
    with pytest.raises(Damaged, match="is not what was written"):
        list(read_runs([run], KEY))


def test_a_staged_file_that_the_driver_does_not_see_is_told(folder: Path) -> None:
    (run,) = write_runs(folder, [ints(1)], SCHEMA, KEY)
    os.remove(run.path)
    with pytest.raises(NotFound, match="must see the same directory"):
        list(read_runs([run], KEY))


def test_a_full_disk_is_a_plain_error_of_the_task(folder: Path) -> None:
    """A limit on the size of files is what an unprivileged test can have of a full disk."""
    pid = os.fork()
    if pid == 0:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            write_runs(folder, [ints(*range(100_000))], SCHEMA, KEY)
        except HeadraceError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


# --- directories


def test_a_batch_that_landed_and_those_before_it_are_removed(folder: Path) -> None:
    area = StagingArea(folder)
    for name in ("q/3", "q/4", "q/5", "q/notes", "other/3"):
        area.folder(name).mkdir(parents=True)
        (area.folder(name) / "x.arrow").touch()
    area.landed("q", 4)
    assert sorted(each.name for each in (folder / "q").iterdir()) == ["5", "notes"]
    area.landed("nothing", 4)
    area.clear("q/5")
    area.clear("q/5")
    assert sorted(each.name for each in folder.rglob("*")) == [
        "3",
        "notes",
        "other",
        "q",
        "x.arrow",
        "x.arrow",
    ]


def test_what_was_abandoned_for_long_is_removed_and_nothing_else(folder: Path) -> None:
    week = staging._ABANDONED_S
    for name, age in (("old", week + 60), ("new", 0.0), ("old-with-a-new-batch", week + 60)):
        (folder / name / "7").mkdir(parents=True)
        for path in (folder / name / "7", folder / name):
            moment = folder.stat().st_mtime - age
            os.utime(path, (moment, moment))
    (folder / "old-with-a-new-batch" / "8").mkdir()
    moment = folder.stat().st_mtime - week - 60
    os.utime(folder / "old-with-a-new-batch", (moment, moment))
    (folder / "a-file").touch()
    StagingArea(folder).remove_abandoned()
    assert sorted(each.name for each in folder.iterdir()) == ["a-file", "new", "old-with-a-new-batch"]
    StagingArea(folder / "nothing").remove_abandoned()


def test_each_stream_has_its_own_place() -> None:
    assert StagingArea.of("data", "orders").path == Path("data/staging/orders")
