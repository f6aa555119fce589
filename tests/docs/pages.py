"""Pages: the Markdown files of the project, and the fenced blocks in them.

How a page is run, from top to bottom, in one empty directory:

    ```python     is executed; all blocks of a page share one namespace
    ```text       right behind a python block: what that block prints, to the letter
    ```console    lines that begin with `$ ` are run by a shell; the lines below each are what it prints,
                  where `…` stands for anything; `# exit 3` at the end of a line is its exit code
    ```sh         lines that begin with `headrace ` are run in the same way, whatever they print

Everything else is for reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\s*$")
_EXIT = re.compile(r"\s+# exit (\d+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `line` is where its text begins."""

    language: str
    text: str
    line: int
    adjacent: bool
    """Whether only blank lines are between it and the block before."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command line, what it prints (None: anything) and its exit code."""

    line: str
    output: str | None
    code: int


def all_pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def executed_pages() -> list[Path]:
    guides = sorted((ROOT / "docs" / "guide").glob("*.md"))
    elsewhere = [*spark_pages(), ROOT / "docs" / "guide" / "node.md"]  # that one needs a node: tests/server
    return [ROOT / "README.md", *(page for page in guides if page not in elsewhere)]


def spark_pages() -> list[Path]:
    """The pages whose snippets need Spark."""
    return [
        ROOT / "docs" / "guide" / name
        for name in ("journal.md", "spark.md", "tail-produce.md", "spark-jobs.md")
    ]


def blocks_of(page: Path) -> Iterator[Block]:
    language, lines, start, adjacent = "", list[str](), 0, False
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if not inside and fence:
            inside, language, lines, start = True, fence[1], [], number + 1
        elif inside and line == "```":
            yield Block(language, "\n".join(lines), start, adjacent)
            inside, adjacent = False, True
        elif inside:
            lines.append(line)
        elif line.strip():
            adjacent = False
    assert not inside, f"{page}: the block at line {start} does not end"


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of a console or sh block."""
    if block.language == "sh":
        for line in block.text.splitlines():
            if line.startswith("headrace "):
                yield Command(line, None, 0)
        return
    line, output = "", list[str]()
    for text in [*block.text.splitlines(), "$ "]:
        if not text.startswith("$ "):
            output.append(text)
            continue
        if line:
            code = _EXIT.search(line)
            yield Command(_EXIT.sub("", line), "\n".join(output), int(code[1]) if code else 0)
        line, output = text[2:], []


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is what was expected; `…` stands for anything within a line, or for whole lines."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
