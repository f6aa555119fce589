"""What the pages must hold: links that lead somewhere, and a word on everything that a user can meet."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import headrace
from headrace.cli.app import app
from headrace.kernel.errors import HeadraceError

from .pages import ROOT, all_pages, blocks_of

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
OPERATIONS = ROOT / "docs" / "guide" / "operations.md"
COVERAGE = ROOT / "docs" / "coverage.md"
PATH = re.compile(r"`((?:src|tests|docs|examples|bench)/[^`\s*]+|Makefile|README\.md)`")
ROW = re.compile(r"^\| ((?:FJ|SH|QP|QF|RG)-\d+) \|", re.MULTILINE)

IN_SCOPE = [
    *(f"QF-{n:02d}" for n in range(1, 33)),
    *(f"SH-{n:02d}" for n in (*range(1, 52), 55)),
    *(f"QP-{n:02d}" for n in (*range(5, 13), *range(37, 40))),
    *(f"RG-{n:02d}" for n in (4, 10, 14, 62, 63, 64, 84)),
    *(f"FJ-{n:02d}" for n in range(1, 114)),
]


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(without_blocks(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors_of(target), f"{page.name}: {link}"


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_names_a_directory_of_somebodys_machine(page: Path) -> None:
    assert not re.search(r"(?<![\w.])/(work|root|home)/", page.read_text())


def test_every_command_is_in_the_docs() -> None:
    text = "\n".join(page.read_text() for page in all_pages())
    for command in commands_of(app, "headrace"):
        assert re.search(rf"{command}\b", text), command


def commands_of(group: typer.Typer, prefix: str) -> Iterator[str]:
    for command in group.registered_commands:
        yield f"{prefix} {command.name or command.callback.__name__}"
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands_of(inner.typer_instance, f"{prefix} {inner.name}")


def test_every_error_code_is_explained_to_operators() -> None:
    text = OPERATIONS.read_text()
    for code in error_codes():
        assert f"| `{code}` |" in text, code


def error_codes() -> set[str]:
    codes = set()
    for module in pkgutil.walk_packages(headrace.__path__, "headrace."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, HeadraceError):
                codes.add(kind.code)
    return codes


def test_every_requirement_in_scope_is_accounted_for() -> None:
    rows = ROW.findall(COVERAGE.read_text())
    assert sorted(set(rows)) == sorted(rows), "an id has two rows"
    assert set(IN_SCOPE) <= set(rows), sorted(set(IN_SCOPE) - set(rows))


@pytest.mark.parametrize("page", all_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    for path in PATH.findall(without_blocks(page)):
        assert (ROOT / path.rstrip("/")).exists(), f"{page.name}: {path}"


def without_blocks(page: Path) -> str:
    text = page.read_text()
    for block in blocks_of(page):
        text = text.replace(block.text, "") if block.text.strip() else text
    return text


def anchors_of(page: Path) -> set[str]:
    """The headings of a page as the anchors that Markdown makes of them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
