"""The page on HTTP: its curl commands, from top to bottom, against a node that takes a free port."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks_of, commands_of, matches

from .http_node import served

PAGE = ROOT / "docs" / "guide" / "http.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_command_of_the_page_prints_what_the_page_shows(place: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with served(place / "data") as node:
        done = 0
        for block in blocks_of(PAGE):
            for command in commands_of(block) if block.language == "shell" else ():
                if not command.line.startswith("headrace serve"):  # that is the node itself
                    line = command.line.replace("localhost:7400", f"127.0.0.1:{node.ask.port}")
                    printed = run(line, path)
                    assert command.output is not None
                    assert matches(command.output, printed), f"{command.line}\n{printed}"
                    done += 1
    assert done > 20


def run(line: str, path: str) -> str:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        env=os.environ | {"PATH": path, "no_proxy": "*"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
