"""Every snippet of the README and the guide does what it says."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT, executed_pages, spark_pages
from .running import run_page


@pytest.mark.parametrize("page", executed_pages(), ids=lambda page: page.name)
def test_every_snippet_runs_and_prints_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger("headrace"), "disabled", True)
    monkeypatch.setitem(sys.modules, "snippet", None)  # put back what was there, afterwards
    run_page(page)


def test_every_snippet_of_the_guides_to_spark_does_too(tmp_path: Path) -> None:
    """In a process of their own, with one session for all: Spark resolves paths where it was started."""
    skip_without_java()
    command = [sys.executable, "-m", "docs.running", *map(str, spark_pages())]
    env = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def skip_without_java() -> None:
    pytest.importorskip("pyspark")
    from headrace.spark.session import JavaMissing, check_java

    try:
        check_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
