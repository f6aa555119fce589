"""Quantities as people write them: sizes (512K, 10MB, 128MiB) and durations (30s, 2h, 7d).

K, M, G, T alone and with iB count in 1024s; with B in 1000s, as `dd` has it. Wrong ones raise ValueError
with a sentence, which typer turns into a usage error.
"""

from __future__ import annotations

import re

from headrace.kernel.durations import SECONDS

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes."""
    number, unit = _split(text, "a size such as 512K, 10MB or 128MiB")
    letter, rest = unit[:1].lower(), unit[1:].lower()
    if unit.lower() in ("", "b"):
        factor = 1
    elif letter in _POWERS and rest in ("", "b", "ib"):
        factor = (1000 if rest == "b" else 1024) ** _POWERS[letter]
    else:
        raise ValueError(f"{text!r} is not a size such as 512K, 10MB or 128MiB")
    size = float(number) * factor if "." in number else int(number) * factor
    if size != int(size):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)


def parse_duration(text: str) -> float:
    """Seconds."""
    number, unit = _split(text, "a duration such as 30s, 2h or 7d")
    if unit.lower() not in SECONDS:
        raise ValueError(f"{text!r} is not a duration such as 30s, 2h or 7d: the units are ms s m h d w")
    return float(number) * SECONDS[unit.lower()]


def _split(text: str, wanted: str) -> tuple[str, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not {wanted}")
    return match[1], match[2]


def format_size(size: int) -> str:
    """`1.5 MiB (1,572,864 bytes)`; small sizes in bytes only."""
    exact = f"{format_count(size)} bytes"
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.1f} {unit} ({exact})"
    return exact


def format_duration(seconds: float) -> str:
    """The largest unit that divides it: `2h`, `90s`."""
    for unit in ("w", "d", "h", "m"):
        if seconds and seconds % SECONDS[unit] == 0:
            return f"{int(seconds / SECONDS[unit])}{unit}"
    return f"{seconds:g}s"


def format_count(count: int) -> str:
    return f"{count:,}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """`1 entry`, `2 entries`."""
    return f"{format_count(count)} {noun if count == 1 else many or noun + 's'}"
