"""The console: everything that commands print, and the only module that knows rich.

stdout carries data: entries, or one answer. stderr carries talk: notes, damages, errors, progress bars.

With `--json` an answer is one JSON object on stdout, and every line on stderr is one too:

    {"error": {"code": "not_found", "message": "…"}}       the last line of a command that failed
    {"damage": {"file": "…", "first_lost": 7, …}}          something that could not be read
    {"note": "…"}                                          anything else

Errors go to stderr in both forms, so that stdout holds nothing but data, whatever happens.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

Advance = Callable[[int, int], None]
"""Called with what is done and what there is in all, in the same unit."""


class Exit(IntEnum):
    DONE = 0
    ERROR = 1
    USAGE = 2
    DAMAGE = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Console:
    """Prints for one command, for a person or for a machine."""

    def __init__(self, json: bool) -> None:
        self.json = json

    def answer(self, facts: Mapping[str, Any], text: str) -> None:
        """What the command was asked for: as JSON `facts`, or as `text`."""
        self.write(msgspec.json.encode(facts) + b"\n" if self.json else printable(text).encode() + b"\n")

    def write(self, data: bytes, *, flush: bool = False) -> None:
        """Bytes of data, as they are."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        if flush:
            sys.stdout.buffer.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(Text(printable(column)), overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(_cell(cell))) for cell in row))
        # Without a terminal nobody's lines are broken: there is no width to fit.
        rich = RichConsole(file=sys.stdout, width=None if sys.stdout.isatty() else 10_000)
        with rich.capture() as shown:  # written by ourselves: rich has an exit code of its own for `| head`
            rich.print(table)
        self.write(shown.get().encode())

    def note(self, text: str) -> None:
        _print_talk(text, {"note": text}, self.json)

    def damage(self, damage: object) -> None:
        """Something that could not be read; the command goes on."""
        _print_talk(f"damage: {damage}", {"damage": damage}, self.json)

    @contextmanager
    def progress(self, label: str, *, wanted: bool = True) -> Iterator[Advance]:
        """A bar on stderr while the block runs, gone after it; none unless a person is watching."""
        if self.json or not wanted or not sys.stderr.isatty():
            yield lambda done, total: None
            return
        parts = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*parts, console=RichConsole(stderr=True), transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


def aligned(facts: Iterable[tuple[str, object]]) -> str:
    """Facts one below the other, their names in a column; numbers as they can be typed in again."""
    pairs = [(name, str(fact)) for name, fact in facts]
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name:<{width}}  {fact}" for name, fact in pairs)


def _cell(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def print_error(code: str, message: str, json: bool) -> None:
    sentence = " ".join(message.splitlines())
    facts = {"error": {"code": code, "message": printable(sentence)}}
    with suppress(OSError):  # nobody listens: the exit code has to do
        _print_talk(f"error ({code}): {sentence}", facts, json)


def _print_talk(text: str, facts: Mapping[str, Any], json: bool) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()  # data that came before must be seen before
    line = msgspec.json.encode(facts).decode() if json else " ".join(printable(text).splitlines())
    print(line, file=sys.stderr, flush=True)


def printable(text: str | Path) -> str:
    """`text` as it can be encoded: the names of files are bytes, and need not be UTF-8."""
    return str(text).encode(errors="backslashreplace").decode()


def silence_stdout() -> None:
    """After a failed write: let Python's own flush at exit go nowhere, in silence."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def open_what_is_closed() -> None:
    """Standard input and outputs that whoever started us has closed are opened, so that no file of ours gets
    their numbers. To read or to write them fails, but for stderr, as if they were closed."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


class _Warnings(logging.Handler):
    """Passes on what the library warns of, in the form of all talk."""

    def __init__(self, json: bool) -> None:
        super().__init__(logging.WARNING)
        self._console = Console(json)

    def emit(self, record: logging.LogRecord) -> None:
        self._console.note(f"{record.levelname.lower()}: {record.getMessage()}")


def route_warnings(json: bool) -> None:
    logging.getLogger("headrace").handlers = [_Warnings(json)]
