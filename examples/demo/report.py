"""The report: one HTML file that needs nothing else, with plots of what happened."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from market import BEGIN
from plot import Series, plot

import headrace

SHOWN = 5
_STYLE = Path(__file__).parent / "report.css"


@dataclass
class Story:
    """What the demo did, as it goes."""

    begun_s: float
    seconds: float = 0.0
    published: int = 0
    publish_rate: float = 0.0
    job: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    live: list[tuple[float, float]] = field(default_factory=list)
    results: pa.Table | None = None

    def best(self) -> list[list[str]]:
        """The symbols with most turnover: name, fills, turnover, low, high."""
        sums = [("fills", "sum"), ("turnover", "sum"), ("low", "min"), ("high", "max")]
        table = self.results.group_by("sym").aggregate(sums).sort_by([("turnover_sum", "descending")])
        return [
            [
                row["sym"],
                f"{row['fills_sum']:,}",
                f"{row['turnover_sum'] / 1e6:,.1f} M",
                f"{row['low_min']:.2f}",
                f"{row['high_max']:.2f}",
            ]
            for row in table.slice(0, SHOWN).to_pylist()
        ]


def write_report(path: Path, story: Story, checks: dict[str, bool]) -> None:
    path.write_text(_PAGE.format(body="\n".join(_body(story, checks)), style=_STYLE.read_text()))


def _body(story: Story, checks: dict[str, bool]) -> list[str]:
    took = np.array([each[1] for each in story.live]) if story.live else np.zeros(1)
    held = sum(checks.values())
    tiles = [
        ("entries published", f"{story.published:,}", f"{story.publish_rate / 1e6:.1f} M a second, durable"),
        ("TailProduce", f"{_rate(story.job) / 1e3:,.0f} k/s", "entries of two streams, in one order"),
        ("windows", f"{_rate(story.windows) / 1e3:,.0f} k/s", "rows from a stream into a stream"),
        (
            "live latency",
            f"{np.median(took):.2f} s",
            f"p50, from publish to a listener; p99 {np.quantile(took, 0.99):.2f} s",
        ),
        ("checks", f"{held} of {len(checks)}", "hold" if held == len(checks) else "DO NOT ALL HOLD"),
        ("all of it", f"{story.seconds:.0f} s", f"on {os.cpu_count()} cores"),
    ]
    versions = (
        f"headrace {headrace.__version__} · Spark {pyspark.__version__} · Python {platform.python_version()}"
    )
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC · {versions}"
    return [
        f"<header><h1>headrace on Spark</h1><p>{made}</p></header>",
        '<section class="tiles">' + "".join(_tile(*tile) for tile in tiles) + "</section>",
        "<h2>Results over time</h2>",
        f'<section class="plots">{_turnover(story)}{_prices(story)}</section>',
        "<h2>How it ran</h2>",
        '<section class="plots">',
        *(drawn(story) for drawn in (_throughput, _durations, _live, _spread)),
        "</section>",
        '<section class="pair">',
        _best(story),
        _checks(checks),
        "</section>",
    ]


def _tile(name: str, value: str, more: str) -> str:
    return f"<div><span>{escape(name)}</span><b>{escape(value)}</b><small>{escape(more)}</small></div>"


def _figure(title: str, says: str, picture: str) -> str:
    return f"<figure><figcaption><b>{escape(title)}</b><br>{escape(says)}</figcaption>{picture}</figure>"


def _rate(batches: list[dict[str, Any]]) -> float:
    return sum(each["entries"] for each in batches) / max(1e-9, sum(each["seconds"] for each in batches))


def _thousands(value: float) -> str:
    return f"{value / 1000:g}k" if value else "0"


def _throughput(story: Story) -> str:
    series = [
        Series(
            name,
            [n + 1 for n in range(len(made))],
            [each["entries"] / each["seconds"] for each in made],
            "bars",
        )
        for name, made in (("TailProduce", story.job), ("windows", story.windows))
    ]
    picture = plot(
        series,
        label="entries a second by batch",
        y_text=lambda y: _thousands(round(y)),
        x_ticks=_numbers(story),
    )
    return _figure(
        "Throughput of each micro-batch", "entries a second; the first batch starts Spark's workers", picture
    )


def _durations(story: Story) -> str:
    series = [
        Series(name, [n + 1 for n in range(len(made))], [each["seconds"] for each in made], "bars")
        for name, made in (("TailProduce", story.job), ("windows", story.windows))
    ]
    picture = plot(
        series, label="seconds of each batch", y_text=lambda y: f"{y:.3g} s", x_ticks=_numbers(story)
    )
    return _figure("Latency of each micro-batch", "seconds from its begin to its commit on the disk", picture)


def _numbers(story: Story) -> list[float]:
    """The batches to be numbered below a plot: all, or every fifth if they are many."""
    most = max(len(story.job), len(story.windows), 1)
    return [float(n) for n in range(1, most + 1) if most <= 14 or n % 5 == 0]


def _live(story: Story) -> str:
    points = story.live[:: max(1, len(story.live) // 1200)]
    series = [Series("latency", [each[0] for each in points], [each[1] for each in points], "dots")]
    picture = plot(
        series, label="latency of live trades", x_text=lambda x: f"{x:.3g} s", y_text=lambda y: f"{y:.3g} s"
    )
    return _figure(
        "Live: each trade until its fill is there",
        "seconds, by the second in which it was published",
        picture,
    )


def _spread(story: Story) -> str:
    took = sorted(each[1] for each in story.live) or [0.0]
    shares = np.linspace(0, 1, 101)
    series = [
        Series("share", [float(np.quantile(took, share)) for share in shares], list(shares * 100), "area")
    ]
    picture = plot(
        series,
        label="share of live trades by latency",
        x_text=lambda x: f"{x:.3g} s",
        y_text=lambda y: f"{y:.0f} %",
    )
    return _figure("Live: how many are there after so many seconds", "share of all live trades", picture)


def _turnover(story: Story) -> str:
    table = story.results.group_by("at").aggregate([("turnover", "sum")]).sort_by("at")
    xs, ys = _hours(table.column("at")), [y / 1e6 for y in table.column("turnover_sum").to_pylist()]
    xs, ys = _cut_live(xs, ys)
    picture = plot(
        [Series("turnover", xs, ys, "area")],
        label="turnover over time",
        x_text=_day,
        x_ticks=[0, 12, 24, 36, 48, 60, 72],
        y_text=lambda y: f"{y:g} M",
    )
    return _figure(
        "Turnover", "of all symbols, every 15 minutes; read from the stream that Spark wrote", picture
    )


def _prices(story: Story) -> str:
    names = [row[0] for row in story.best()]
    series = []
    for name in names:
        mine = story.results.filter(pc.equal(story.results.column("sym"), name)).sort_by("at")
        middle = pc.divide(pc.add(mine.column("low"), mine.column("high")), 2).to_pylist()
        xs, ys = _cut_live(_hours(mine.column("at")), middle)
        series.append(Series(name, xs, [100 * (y / ys[0] - 1) for y in ys]))
    picture = plot(
        series,
        label="prices over time",
        x_text=_day,
        x_ticks=[0, 12, 24, 36, 48, 60, 72],
        y_text=lambda y: f"{y:+.3g} %" if y else "0 %",
        from_zero=False,
    )
    return _figure("Prices", "of the symbols with most turnover, since the first window", picture)


def _hours(column: pa.ChunkedArray) -> list[float]:
    seconds = pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1_000_000).to_pylist()
    return [(each - _begin()) / 3600 for each in seconds]


def _begin() -> float:
    return BEGIN.timestamp()


def _cut_live(xs: list[float], ys: list[float]) -> tuple[list[float], list[float]]:
    """Without the windows of the live part: its few seconds are another market."""
    kept = [(x, y) for x, y in zip(xs, ys, strict=True) if x <= 72]
    return [x for x, _ in kept], [y for _, y in kept]


def _day(hours: float) -> str:
    moment = datetime.fromtimestamp(_begin() + hours * 3600, UTC)
    return f"{moment:%-d %b}" if moment.hour == 0 and moment.minute == 0 else f"{moment:%H:%M}"


def _best(story: Story) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("symbol", "fills", "turnover", "low", "high"))
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in story.best()
    )
    return f"<div><h2>Most turnover</h2><table><tr>{head}</tr>{rows}</table></div>"


def _checks(checks: dict[str, bool]) -> str:
    rows = "".join(
        f'<li class="{"held" if held else "broken"}">{escape(what)}</li>' for what, held in checks.items()
    )
    return f'<div><h2>What was checked</h2><ul class="checks">{rows}</ul></div>'


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headrace on Spark</title><style>{style}</style></head>
<body>
{body}
</body></html>
"""
