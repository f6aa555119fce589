"""`headrace spark` where nothing starts: mistakes that are told at once, and machines without Spark."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import headrace
from tests.cli.streaming import Streams
from tests.cli.test_every_command import COMMANDS

HAS_PYSPARK = importlib.util.find_spec("pyspark") is not None
needs_pyspark = pytest.mark.skipif(not HAS_PYSPARK, reason="PySpark is not installed")


def refused(*words: str | Path, code: int = 1) -> str:
    """What is said of a command that fails: one line."""
    outcome = headrace("spark", *words)
    assert (outcome.code, outcome.out) == (code, b""), outcome
    assert outcome.err.count("\n") == 1, outcome.err
    return outcome.err


def test_the_commands_of_the_noun_spark_are_all_there() -> None:
    assert [words[1] for words in COMMANDS if words[0] == "spark"] == [
        "run",
        "archive",
        "compact",
        "verify",
        "redrive",
    ]


def test_other_commands_do_not_load_spark() -> None:
    asked = "import sys, headrace.cli.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert not {"pyspark", "py4j", "headrace.spark.session"} & set(done.stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        ("archive", "orders", "--to", "lake"),
        ("compact", "orders", "latest", "--by", "user"),
        ("verify",),
        ("run", __file__),
    ],
)
def test_without_pyspark_it_says_how_to_install_it(
    streams: Streams, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.orders()
    for name in [name for name in sys.modules if name.startswith(("headrace.spark", "pyspark"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    said = refused(*words, "--store", streams.path)
    assert said.startswith("error (missing_extra): this needs Spark, and pyspark")
    assert "pip install 'headrace[spark]'" in said


@needs_pyspark
def test_what_is_not_there_is_told_at_once(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    here, nowhere = ("--store", streams.path), ("--store", tmp_path / "nowhere")
    for words in (
        ("archive", "orders", "--to", tmp_path / "lake"),
        ("compact", "orders", "latest", "--by", "user"),
        ("verify",),
    ):
        assert "error (not_found): there is no store at" in refused(*words, *nowhere)
    for words in (
        ("archive", "nope", "--to", tmp_path / "lake"),
        ("compact", "nope", "latest", "--by", "user"),
        ("verify", "nope"),
    ):
        assert "error (not_found): there is no stream 'nope'" in refused(*words, *here)
    assert "error (not_found): there is no file" in refused("run", tmp_path / "nope.py", *here)
    assert not (tmp_path / "lake").exists()


@needs_pyspark
def test_what_cannot_be_is_told_at_once(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    streams("create", "plain")
    (tmp_path / "mine").touch()
    here = ("--store", streams.path)
    assert "has no field 'nope': it has at, user, amount" in refused(
        "compact", "orders", "x", "--by", "nope", *here
    )
    assert "error (stream_exists)" in refused("compact", "orders", "plain", "--by", "user", *here)
    assert "error (bad_name)" in refused("compact", "orders", "a/b", "--by", "user", *here)
    assert "holds other files" in refused("archive", "orders", "--to", tmp_path, *here)
    by_day = ("archive", "plain", "--to", tmp_path / "lake", "--by", "day")
    assert "is ordered by index, which is no time" in refused(*by_day, *here)


@needs_pyspark
def test_a_wrong_master_is_told_at_once(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.spark import quiet

    monkeypatch.setattr(quiet.SparkSession, "getActiveSession", staticmethod(lambda: None))
    streams.orders()
    here = ("--store", streams.path)
    assert "'cluster' is no master of Spark" in refused("verify", "--master", "cluster", *here)
    assert "lacks a host or a port" in refused("verify", "--master", "spark://host", *here)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        address = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        said = refused("verify", "--master", address, *here)
    assert said.startswith("error (spark_failed): Spark's master cannot be reached (127.0.0.1:")


@needs_pyspark
def test_without_java_it_says_how_to_install_it(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.spark import quiet

    monkeypatch.setattr(quiet.SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    streams.orders()
    said = refused("verify", "--store", streams.path)
    assert said.startswith("error (java_missing): there is no java in JAVA_HOME")


@pytest.mark.parametrize("setting", ["spark.a", "a=b", "=b"])
def test_a_setting_that_is_none_is_wrong_usage(streams: Streams, setting: str) -> None:
    pytest.importorskip("pyspark")
    streams.orders()
    said = refused("verify", "--store", streams.path, "--conf", setting, code=2)
    assert "is not spark.…=value" in said
