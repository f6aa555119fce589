"""The pages on HTTP and on copies: their commands, from top to bottom, against a node on a free port."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks_of, commands_of, matches

from .http_node import served

PAGES = {"http.md": 20, "replication.md": 15}
"""And how many commands they have at least."""


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_prints_what_the_page_shows(place: Path, page: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with served(place / "data") as node:
        done = 0
        for block in blocks_of(ROOT / "docs" / "guide" / page):
            for command in commands_of(block) if block.language == "shell" else ():
                if not command.line.startswith("headrace serve"):  # that is the node itself
                    line = command.line.replace("localhost:7400", f"127.0.0.1:{node.ask.port}")
                    printed = run(line, path, place)
                    assert command.output is not None
                    assert matches(command.output, printed), f"{command.line}\n{printed}"
                    done += 1
    assert done > PAGES[page]


def run(line: str, path: str, place: Path) -> str:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=place,
        env=os.environ | {"PATH": path, "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
