"""Every example runs from its beginning to its end, twice in the same place; those on Spark once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT
from .test_snippets import skip_without_java

EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if "spark" not in path.read_text())
ON_SPARK = sorted(path for path in (ROOT / "examples").glob("*.py") if "spark" in path.read_text())
FOLDERS = [ROOT / "examples" / name for name in ("demo", "pipeline")]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_run_and_run_again(example: Path, tmp_path: Path) -> None:
    if example.stem == "crash_and_recover":  # it takes some seconds: what another run has left must do
        (tmp_path / "demo-data" / "log" / "kept").mkdir(parents=True)
    for _ in range(1 if example.stem == "crash_and_recover" else 2):
        printed(example, tmp_path)


def test_messages_of_kafka_come_once_and_entries_go_there_once(tmp_path: Path) -> None:
    """By a broker of librdkafka's own, over real connections."""
    assert printed(ROOT / "examples" / "kafka_client.py", tmp_path).splitlines() == [
        "pulled 1000 messages, left out 0 that were known",
        "and after a crash before Kafka was told: pulled 0 messages, left out 1000 that were known",
        "pushed 1 of 1 invoices",
        "pushed 1 of 2 invoices",
        "pushed 1 of 3 invoices",
    ]


@pytest.mark.parametrize("example", ON_SPARK, ids=lambda path: path.stem)
def test_an_example_on_spark_checks_itself(example: Path, tmp_path: Path) -> None:
    if "HEADRACE_CAMPAIGN" not in os.environ:
        pytest.skip("nearly a minute each: make campaign runs them; the guides to Spark run in any case")
    skip_without_java()
    printed(example, tmp_path)


@pytest.mark.skipif("HEADRACE_CAMPAIGN" not in os.environ, reason="long: make campaign runs it")
def test_the_declarative_pipeline_goes_on_where_it_was(tmp_path: Path) -> None:
    skip_without_java()
    if not all(importlib.util.find_spec(name) for name in ("grpc", "grpc_status", "zstandard", "yaml")):
        pytest.skip("needs headrace[pipelines]")
    printed(ROOT / "examples" / "pipeline", tmp_path)


@pytest.mark.skipif("HEADRACE_CAMPAIGN" not in os.environ, reason="long: make campaign and make demo run it")
def test_a_small_demo_holds_all_its_checks_and_writes_its_report(tmp_path: Path) -> None:
    skip_without_java()
    assert "all hold" in printed(ROOT / "examples" / "demo", tmp_path, "--entries", "20000", "--live", "1")
    report = (tmp_path / "demo-data" / "report.html").read_text()
    assert report.count("<svg") == 6
    assert "http" not in report, "it needs nothing from elsewhere"


def printed(example: Path, place: Path, *arguments: str) -> str:
    """What an example prints; it must end well."""
    done = subprocess.run(
        [sys.executable, str(example), *arguments], cwd=place, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    return done.stdout


def test_every_example_says_what_it_is() -> None:
    inside = [path for folder in FOLDERS for path in folder.rglob("*.py")]
    for example in (*EXAMPLES, *ON_SPARK, *inside):
        assert example.read_text().startswith('"""'), example.name
