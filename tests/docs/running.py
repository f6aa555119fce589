"""Running a page: its snippets from top to bottom, in the directory that is current.

python -m docs.running PAGE…        several pages in one process, so that they share one Spark session
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import logging
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from typer.testing import CliRunner

from headrace.cli.app import app

from .pages import ROOT, Block, blocks_of, commands_of, matches

OPTIONAL = ("pandas", "polars", "duckdb")
"""A block that imports one of these is passed over where it is not installed."""


def run_page(page: Path) -> None:
    """Run all blocks of a page; AssertionError where it is not as the page says."""
    module = ModuleType("snippet")  # classes look their annotations up in the module they are defined in
    sys.modules["snippet"] = module
    printed: str | None = None
    for block in blocks_of(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "python":
            printed = run_python(block, module, where)
        elif block.language == "text" and block.adjacent and printed is not None:
            assert printed.rstrip("\n") == block.text, f"{where}\n{printed}"
        elif block.language in ("console", "sh"):
            run_commands(block, where)
        if block.language != "python":
            printed = None


def run_python(block: Block, module: ModuleType, where: str) -> str | None:
    """What the block prints; None if it needs something that is not installed."""
    if any(name in OPTIONAL and not importlib.util.find_spec(name) for name in imported(block.text)):
        return None
    code = compile("\n" * (block.line - 1) + block.text, where.rpartition(":")[0], "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, module.__dict__)
    return out.getvalue()


def imported(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
    return names


def run_commands(block: Block, where: str) -> None:
    for command in commands_of(block):
        code, printed = run_command(command.line)
        assert code == command.code, f"{where}: {command.line}\n{printed}"
        if command.output is not None:
            assert matches(command.output, printed), f"{where}: {command.line}\n{printed}"


def run_command(line: str) -> tuple[int, str]:
    """The exit code of a command line, and what it prints; plain calls of headrace need no new process."""
    if line.startswith("headrace ") and not any(sign in line for sign in "|<>;&"):
        result = CliRunner().invoke(app, shlex.split(line)[1:], prog_name="headrace")
        return result.exit_code, result.stdout + result.stderr
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path}
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def main(pages: list[Path]) -> None:
    """Each page begins in an empty directory: the same one, since Spark keeps to where it was started."""
    logging.getLogger("headrace").disabled = True
    for page in pages:
        for left in Path().iterdir():
            if left.is_dir():
                shutil.rmtree(left)
        run_page(page)


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
