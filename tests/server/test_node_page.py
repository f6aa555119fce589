"""The page on nodes and their clients: its snippets, from top to bottom, against a node on a free port."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from docs.pages import ROOT, blocks_of
from docs.running import run_python

from .http_node import served

PAGE = ROOT / "docs" / "guide" / "node.md"


def test_every_snippet_of_the_page_prints_what_the_page_shows(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("snippet")
    monkeypatch.setitem(sys.modules, "snippet", module)
    printed: str | None = None
    compared = 0
    with served(place / "data") as node:
        for block in blocks_of(PAGE):
            if block.language == "python":
                here = block.text.replace("localhost:7400", f"127.0.0.1:{node.ask.port}")
                printed = run_python(replace(block, text=here), module, f"node.md:{block.line}")
            elif block.language == "text":
                assert printed is not None
                assert printed.rstrip("\n") == block.text, f"line {block.line}\n{printed}"
                compared += 1
    assert compared > 4
