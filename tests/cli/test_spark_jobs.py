"""`headrace spark` at work: in this process with the session of all tests, and once as a real process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.cli.running import COMMAND, Outcome, headrace
from tests.cli.streaming import Streams
from tests.spark.conftest import java, spark

__all__ = ["java", "spark"]

pytestmark = pytest.mark.usefixtures("spark")


def run(streams: Streams, *words: str | Path, code: int = 0) -> Outcome:
    outcome = headrace("spark", *words, "--store", streams.path)
    assert outcome.code == code, outcome
    return outcome


def test_archive_says_what_it_did(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    lake = tmp_path / "lake"
    assert run(streams, "archive", "orders", "--to", lake).text.startswith(
        f"archived 3 entries of 'orders' to {lake}: 1 file, "
    )
    assert "nothing new" in run(streams, "archive", "orders", "--to", lake).text
    done = run(streams, "archive", "orders", "--to", tmp_path / "hours", "--by", "hour", "--json").json
    assert (done["by"], done["entries"], done["files"], done["next_index"]) == ("hour", 3, 1, 3)
    assert (tmp_path / "hours" / "day=2024-07-01" / "hour=12").is_dir()


def test_verify_says_what_stream_verify_says(streams: Streams) -> None:
    streams.orders()
    streams.damaged()
    for name, code in (("orders", 0), ("torn", 3)):
        for words in ((), ("--json",)):
            on_spark, here = (
                run(streams, "verify", name, *words, code=code),
                streams.run("verify", name, *words),
            )
            assert (on_spark.out, on_spark.err, on_spark.code) == (here.out, here.err, here.code)


def test_verify_of_all_streams_is_a_table(streams: Streams) -> None:
    streams.orders()
    assert "whole" in run(streams, "verify").text
    streams.damaged()
    shown = run(streams, "verify", code=3).text
    assert "entries 2 to 3 are lost" in shown
    assert [line.split()[:2] for line in shown.splitlines() if "orders" in line] == [["orders", "whole"]]
    found = run(streams, "verify", "--json", code=3).json
    assert found["ok"] is False
    assert {each["name"]: each["lost"] for each in found["streams"]} == {"orders": [], "torn": [[2, 4]]}
    (streams.path / "streams" / "orders" / "meta.json").write_bytes(b"{")
    assert "stream 'orders' cannot be opened (damaged)" in run(streams, "verify", code=3).err


def test_compact_says_how_many_remain(streams: Streams) -> None:
    streams.orders()
    done = run(streams, "compact", "orders", "latest", "--by", "user")
    assert done.text == "compacted 3 entries of 'orders' by user: 2 entries remain in 'latest'\n"
    assert [row["user"] for row in streams.rows("latest")] == ["bob", "ann"]
    streams("drop", "latest", "--yes")
    facts = run(streams, "compact", "orders", "latest", "--by", "user", "--json").json
    assert facts == {"stream": "orders", "into": "latest", "by": "user", "read": 3, "entries": 2}


def test_run_passes_arguments_and_the_exit_code(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    file = tmp_path / "pipeline.py"
    file.write_text("import sys\nprint(sys.argv[1:], spark.range(5).count(), store)\nsys.exit(4)")
    done = headrace("spark", "run", file, "--store", streams.path, "a", "--", "--flag")
    assert (done.code, done.text) == (4, f"['a', '--flag'] 5 {streams.path}\n")
    file.write_text("spark.range(1).select('nope')")
    failed = headrace("spark", "run", file, "--store", streams.path, "--json")
    assert (failed.code, failed.out) == (1, b"")
    assert failed.error["code"] == "spark_failed"
    assert failed.error["message"].startswith("pipeline.py, line 1: Spark says: A column")


def test_a_real_process_prints_its_answer_and_nothing_else(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    file = tmp_path / "pipeline.py"
    file.write_text(
        "count = spark.read.format('headrace').options(path=store, stream='orders').load().count()\n"
        "print(count)\n"
        "spark.sparkContext.parallelize([1]).map(lambda one: 1 / 0).collect()\n"
    )
    words = ["spark", "run", file, "--store", streams.path, "--master", "local[1]", "--json"]
    words += ["--conf", "spark.driver.host=localhost"]
    done = subprocess.run([*COMMAND, *map(str, words)], capture_output=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (1, b"3\n"), done
    (line,) = done.stderr.decode().splitlines()
    error = json.loads(line)["error"]
    assert error["code"] == "spark_failed"
    assert "pipeline.py, line 3: the code that Spark runs failed with ZeroDivisionError" in error["message"]
    log = Path(error["message"].rpartition("Spark's log: ")[2].rstrip(")"))
    assert "ZeroDivisionError" in log.read_text()
    log.unlink()
