"""`headrace stream export`: one file, whole or not there."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.streaming import ORDERS, Streams, lines_of


def test_parquet_is_compressed_with_zstd_in_few_row_groups(streams: Streams, tmp_path: Path) -> None:
    streams("create", "a", "--field", "n:int")
    for n in range(5):
        streams("publish", "a", given=lines_of([{"n": n}]))
    done = streams("export", "a", tmp_path / "a.parquet", "--json").json
    assert (done["count"], done["format"]) == (5, "parquet")
    about = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert about.num_row_groups == 1
    assert about.row_group(0).column(0).compression == "ZSTD"
    assert done["bytes"] == (tmp_path / "a.parquet").stat().st_size
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [{"n": n} for n in range(5)]


def test_json_lines_and_csv_are_text(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    streams("export", "orders", tmp_path / "a.jsonl")
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == ORDERS
    streams("export", "orders", tmp_path / "a.csv", "--columns", "user,amount")
    assert (tmp_path / "a.csv").read_text() == '"user","amount"\n"ann",1.5\n"bob",2\n"ann",\n'


def test_arrow_is_an_ipc_file(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    streams("export", "orders", tmp_path / "x", "--format", "arrow")
    with pa.ipc.open_file(tmp_path / "x") as file:
        assert file.read_all().column("user").to_pylist() == ["ann", "bob", "ann"]


def test_a_range_is_exported_as_cat_shows_it(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    words = ("--from-key", "2024-07-01T12:00:01Z", "--count", "1", "--columns", "user")
    streams("export", "orders", tmp_path / "a.jsonl", *words)
    assert (tmp_path / "a.jsonl").read_bytes() == streams("cat", "orders", *words).out


def test_an_empty_stream_is_a_whole_file_with_its_columns(streams: Streams, tmp_path: Path) -> None:
    streams("create", "a", "--field", "n:int")
    for form in ("parquet", "csv", "jsonl", "arrow"):
        assert streams("export", "a", tmp_path / f"a.{form}", "--json").json["count"] == 0
    assert pq.read_schema(tmp_path / "a.parquet").names == ["n"]
    assert (tmp_path / "a.csv").read_text() == '"n"\n'
    assert (tmp_path / "a.jsonl").read_text() == ""


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "arrow"])
def test_an_export_that_fails_leaves_what_was_there(streams: Streams, tmp_path: Path, form: str) -> None:
    streams.damaged()
    target = tmp_path / f"a.{form}"
    target.write_text("precious")
    assert "--skip-damaged" in streams.refused("export", "torn", target)
    assert target.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [target]
    done = streams.run("export", "torn", target, "--skip-damaged", "--json")
    assert (done.code, done.json["count"], len(done.json["damages"])) == (3, 6, 1)
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_stays_and_the_file_that_it_leads_to_is_replaced(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    link, real = tmp_path / "link.jsonl", tmp_path / "real.jsonl"
    link.symlink_to(real.name)
    for _ in range(2):  # it leads nowhere at first
        streams("export", "orders", link)
        assert link.is_symlink()
        assert len(real.read_bytes().splitlines()) == 3


def test_a_pipe_is_written_to_and_stays(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(pipe.read_bytes)
        try:
            streams("export", "orders", pipe)
        finally:
            os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # lets the reader go in any case
        assert len(reading.result(60).splitlines()) == 3
    assert pipe.is_fifo()


def test_a_target_that_cannot_be_is_one_line(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    assert "is a directory" in streams.refused("export", "orders", tmp_path, "--format", "csv")
    assert "error (not_found)" in streams.refused("export", "orders", tmp_path / "none" / "a.csv")
    assert "--format" in streams.refused("export", "orders", tmp_path / "a.dat", code=2)
