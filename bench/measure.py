"""Measuring: contenders that take turns, figures with an aim, and the tables that show them.

A *figure* is one number of headrace beside one of a peer or a limit. Its ratio always says how many times
as good headrace is: above 1 headrace is ahead, whether the unit is a time (less is better) or a rate.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from rich.table import Table as RichTable

ROOT = Path(__file__).resolve().parent.parent
RATES = ("GB/s", "MB/s", "records/s", "entries/s", "M rows/s", "jobs/s", "commits/s", "commits/sync")


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should reach: a value, a ratio to what stands beside it, or both."""

    value: float | None = None
    ratio: float | None = None

    def say(self, unit: str) -> str:
        sign = "≥" if unit in RATES else "≤"
        value = None if self.value is None else f"{sign} {_number(self.value)} {unit}"
        ratio = None if self.ratio is None else f"≥ {self.ratio:.2g} ×"
        return ", ".join(part for part in (value, ratio) if part)

    def met(self, figure: Figure) -> bool:
        met = True
        if self.value is not None:
            rate = figure.unit in RATES
            met = figure.headrace >= self.value if rate else figure.headrace <= self.value
        return met and (self.ratio is None or (figure.ratio or 0) >= self.ratio)


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    headrace: float
    unit: str
    beside: str = ""
    other: float | None = None
    aim: Aim | None = None

    @property
    def ratio(self) -> float | None:
        if self.other is None:
            return None
        return self.headrace / self.other if self.unit in RATES else self.other / self.headrace

    @property
    def met(self) -> bool | None:
        return None if self.aim is None else self.aim.met(self)


@dataclass(slots=True)
class Table:
    title: str
    note: str = ""
    figures: list[Figure] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """One run of the benchmarks: where its data goes and how much there is of it."""

    directory: Path
    quick: bool
    say: Callable[[str], None]
    _fresh: int = 0

    def scaled(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @property
    def rounds(self) -> int:
        return self.scaled(5, 2)

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Path]:
        """A path where nothing is yet; what is put there goes again. Begins with nothing left to flush."""
        self._fresh += 1
        path = self.directory / f"{self._fresh}"
        os.sync()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def take_turns(rounds: int, contenders: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each contender measured in each round. Who goes first changes from round to round."""
    names = list(contenders)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for at in range(rounds):
        for name in names[at % len(names) :] + names[: at % len(names)]:
            taken[name].append(contenders[name]())
    return taken


def best(rounds: int, contenders: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The least that each contender needed, in turns."""
    return {name: min(times) for name, times in take_turns(rounds, contenders).items()}


@contextlib.contextmanager
def timed() -> Iterator[list[float]]:
    """Seconds spent inside, in a list that holds them afterwards."""
    spent: list[float] = []
    began = time.perf_counter()
    yield spent
    spent.append(time.perf_counter() - began)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@contextlib.contextmanager
def workspace(parent: Path | None) -> Iterator[Path]:
    """A temporary directory on the project's own disk (not in memory), unseen by git."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=parent or ROOT) as name:
        directory = Path(name)
        (directory / ".gitignore").write_text("*\n")
        yield directory


def render(table: Table) -> RichTable:
    shown = RichTable(title=table.title, caption=table.note or None, title_justify="left", expand=True)
    shown.add_column("figure", ratio=5)
    shown.add_column("headrace", justify="right", no_wrap=True)
    shown.add_column("beside", ratio=5)
    shown.add_column("its figure", justify="right", no_wrap=True)
    shown.add_column("ratio", justify="right", no_wrap=True)
    shown.add_column("aim", justify="right", no_wrap=True)
    shown.add_column("met", no_wrap=True)
    for figure in table.figures:
        shown.add_row(*cells(figure))
    return shown


def cells(figure: Figure) -> tuple[str, ...]:
    """A figure as the texts of one row."""
    met = {None: "", True: "yes", False: "NO"}[figure.met]
    return (
        figure.what,
        f"{_number(figure.headrace)} {figure.unit}",
        figure.beside,
        "" if figure.other is None else f"{_number(figure.other)} {figure.unit}",
        "" if figure.ratio is None else f"{figure.ratio:.3g} ×",
        "" if figure.aim is None else figure.aim.say(figure.unit),
        met,
    )


def markdown(table: Table) -> str:
    """The table as docs/benchmarks.md shows it."""
    lines = [f"### {table.title}", "", "| figure | headrace | beside | its figure | ratio | aim | met |"]
    lines.append("|---|--:|---|--:|--:|--:|---|")
    lines += ["| " + " | ".join(cells(figure)) + " |" for figure in table.figures]
    return "\n".join([*lines, "", table.note] if table.note else lines)


def write_json(path: Path, tables: Sequence[Table], *, quick: bool) -> None:
    shown = [
        {
            "title": table.title,
            "note": table.note,
            "figures": [
                asdict(figure) | {"ratio": figure.ratio, "met": figure.met} for figure in table.figures
            ],
        }
        for table in tables
    ]
    content = {
        "machine": machine(),
        "load": load(),
        "time": time.strftime("%F %T %z"),
        "quick": quick,
        "tables": shown,
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def load() -> str:
    """How busy the machine was: with more work than cores, every time holds waiting for a core."""
    minute, *_ = os.getloadavg()
    busy = (
        " (busy: trust ratios only, and those of syncs not at all)" if minute > (os.cpu_count() or 1) else ""
    )
    return f"load average {minute:.1f} on {os.cpu_count()} cores{busy}"


def machine() -> str:
    """What the figures were measured on."""
    model = platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    packages = (
        "pyarrow",
        "xxhash",
        "lmdb",
        "persist-queue",
        "pyspark",
        "greenstalk",
        "redis",
        "nats-py",
        "uvloop",
    )
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"{os.cpu_count()} cores, {model}; Linux {platform.release()}; Python {platform.python_version()}, "
        f"{versions}, SQLite {sqlite3.sqlite_version}"
    )


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
