"""Numbers in queries and headers: whole, from 0 on, and not larger than what they count."""

from __future__ import annotations

from headrace.kernel.errors import Refused

_DIGITS_MAX = 20


def number(text: str, what: str, *, bits: int = 63) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) < 1 << bits):
        raise Refused(f"{what} is a whole number from 0 on, not {text[:40]!r}")
    return int(text)
