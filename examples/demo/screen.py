"""What the demo shows on the terminal: titles, tables of facts, bars for what takes time, and the checks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console(width=min(Console().width, 100))
START_S = time.perf_counter()


def title(number: int, text: str) -> None:
    console.print(f"\n[bold]{number}  {text}[/]  [dim]{time.perf_counter() - START_S:.0f} s[/]")


def facts(rows: list[tuple[str, object]]) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 3))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    console.print(table)


def results(head: list[str], rows: list[list[str]]) -> None:
    table = Table(*head, box=box.SIMPLE_HEAD, padding=(0, 1))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    console.print(table)


class Checks:
    """What must hold, and whether it does."""

    def __init__(self) -> None:
        self.held: dict[str, bool] = {}

    def check(self, what: str, holds: object) -> None:
        self.held[what] = bool(holds)
        console.print(f"   {'[green]✓[/]' if holds else '[red]✗[/]'} {what}", highlight=False)

    @property
    def all_held(self) -> bool:
        return all(self.held.values())


@contextmanager
def bar(text: str, total: float) -> Iterator[Any]:
    """A progress bar; the value is a function that says how far it is."""
    columns = (TextColumn("   {task.description}"), BarColumn(32), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done: progress.update(task, completed=done)


def watched(query: StreamingQuery, text: str, total: int) -> list[dict[str, Any]]:
    """Wait until a query has worked off what was there; its batches, each with `entries` and `seconds`."""
    with bar(text, total) as reached:
        while query.isActive:
            last = query.lastProgress
            if last is not None:
                reached(entries_upto(last, "endOffset"))
            query.awaitTermination(0.25)
    query.awaitTermination()  # raises if it failed
    return batches(query)


def batches(query: StreamingQuery) -> list[dict[str, Any]]:
    """The batches of a query that read something."""
    made = []
    for progress in query.recentProgress:
        entries = entries_upto(progress, "endOffset") - entries_upto(progress, "startOffset")
        seconds = progress["durationMs"]["triggerExecution"] / 1000
        if entries:
            made.append({"batch": progress["batchId"], "entries": entries, "seconds": seconds})
    return made


def entries_upto(progress: Any, which: str) -> int:
    """How many entries lie before an offset of a query: of one stream, or of several together."""
    offset = progress["sources"][0][which]
    if isinstance(offset, str):
        offset = json.loads(offset)
    if not offset:
        return 0
    return int(sum(offset["at"]) if "at" in offset else offset["index"])
