"""Plots as SVG text: lines, areas and bars, with nothing but string formatting.

Colours are CSS variables of the page around them, so that a plot follows the reader's light or dark theme.
Hovering over a mark shows its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 14, 34

Format = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    kind: str = "line"
    """line, area, bars or dots."""


@dataclass(frozen=True)
class Axes:
    """From numbers to places on the picture."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / ((self.x1 - self.x0) or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.y0) / ((self.y1 - self.y0) or 1) * (HEIGHT - TOP - BOTTOM)


def plot(
    series: Sequence[Series],
    *,
    label: str,
    x_text: Format = lambda x: f"{x:g}",
    y_text: Format = lambda y: f"{y:g}",
    x_ticks: Sequence[float] | None = None,
    from_zero: bool = True,
) -> str:
    """One picture. `label` says what it is, for those who do not see it."""
    axes = _axes(series, from_zero, x_ticks or ())
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">',
        *_grid(axes, y_text),
        *_x_labels(axes, _ticks(axes.x0, axes.x1, 6) if x_ticks is None else x_ticks, x_text),
    ]
    bars = [each for each in series if each.kind == "bars"]
    for number, each in enumerate(series):
        tips = [
            f"{each.name}: {y_text(y)} ({x_text(x)})" if len(series) > 1 else f"{y_text(y)} ({x_text(x)})"
            for x, y in zip(each.xs, each.ys, strict=True)
        ]
        colour = f"var(--c{number % 6})"
        match each.kind:
            case "bars":
                parts += _bars(axes, each, colour, tips, (bars.index(each), len(bars)))
            case "dots":
                parts += _dots(axes, each, colour, tips)
            case kind:
                parts += _line(axes, each, colour, kind == "area")
                parts += _dots(axes, each, colour, tips) if len(each.xs) <= 40 else []
    return "\n".join([*parts, "</svg>", _legend(series)])


def _axes(series: Sequence[Series], from_zero: bool, x_ticks: Sequence[float]) -> Axes:
    xs = [*(x for each in series for x in each.xs), *x_ticks] or [0.0, 1.0]
    ys = [y for each in series for y in each.ys] or [0.0, 1.0]
    low, high = (0.0 if from_zero else min(ys)), max(ys)
    ticks = _ticks(low, high if high > low else low + 1, 5)
    half = 0.5 if any(each.kind == "bars" for each in series) else 0.0
    return Axes(min(xs) - half, max(xs) + half, ticks[0], ticks[-1])


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers that cover a range."""
    raw = max((high - low) / about, 1e-12)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [step * n for n in range(first, last + 1)]


def _grid(axes: Axes, text: Format) -> list[str]:
    lines = []
    for value in _ticks(axes.y0, axes.y1, 5):
        y = axes.y(value)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(text(value))}</text>')
    return lines


def _x_labels(axes: Axes, ticks: Sequence[float], text: Format) -> list[str]:
    inside = [value for value in ticks if axes.x0 <= value <= axes.x1]
    return [
        f'<text x="{axes.x(value):.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(text(value))}</text>'
        for value in inside
    ]


def _line(axes: Axes, series: Series, colour: str, filled: bool) -> list[str]:
    points = [f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in zip(series.xs, series.ys, strict=True)]
    if not points:
        return []
    parts = []
    if filled:
        floor = axes.y(axes.y0)
        ends = f"{axes.x(series.xs[-1]):.1f},{floor:.1f} {axes.x(series.xs[0]):.1f},{floor:.1f}"
        parts.append(f'<polygon points="{" ".join(points)} {ends}" fill="{colour}" opacity="0.18"/>')
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.8"'
    return [*parts, f'{line} stroke-linejoin="round"/>']


def _dots(axes: Axes, series: Series, colour: str, tips: list[str]) -> list[str]:
    radius = 3 if len(series.xs) <= 40 else 1.6
    return [
        f'<circle cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="{radius}" fill="{colour}">'
        f"<title>{escape(tip)}</title></circle>"
        for x, y, tip in zip(series.xs, series.ys, tips, strict=True)
    ]


def _bars(axes: Axes, series: Series, colour: str, tips: list[str], place: tuple[int, int]) -> list[str]:
    at, of = place
    room = min(44.0, (axes.x(1) - axes.x(0)) * 0.8)
    width = room / of
    floor = axes.y(axes.y0)
    return [
        f'<rect x="{axes.x(x) - room / 2 + at * width:.1f}" y="{axes.y(y):.1f}" width="{width * 0.94:.1f}" '
        f'height="{max(0.0, floor - axes.y(y)):.1f}" rx="2" fill="{colour}">'
        f"<title>{escape(tip)}</title></rect>"
        for x, y, tip in zip(series.xs, series.ys, tips, strict=True)
    ]


def _legend(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    items = [
        f'<li><i style="background:var(--c{n % 6})"></i>{escape(each.name)}</li>'
        for n, each in enumerate(series)
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'
