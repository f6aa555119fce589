"""Every example runs from its beginning to its end, twice in the same place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_run_and_run_again(example: Path, tmp_path: Path) -> None:
    if example.stem == "crash_and_recover":  # it takes some seconds: what another run has left must do
        (tmp_path / "demo-data" / "log" / "kept").mkdir(parents=True)
    for _ in range(1 if example.stem == "crash_and_recover" else 2):
        done = subprocess.run(
            [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout


def test_every_example_says_what_it_is() -> None:
    for example in EXAMPLES:
        assert example.read_text().startswith('"""'), example.name
