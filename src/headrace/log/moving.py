"""Looking at a log that moves: its writer renames and removes segments while others list them.

What is listed may be gone a moment later. Then nothing is wrong: one looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headrace.kernel.errors import NotFound, Trimmed

_LOOKS = 20
"""A writer that trims faster than one can look so often is no writer: what is missing is missing."""

T = TypeVar("T")


def look_again(look: Callable[[], T]) -> T:
    """What `look` answers, once it has listed and read the log without anything going away in between."""
    for _ in range(_LOOKS - 1):
        try:
            return look()
        except (NotFound, Trimmed):
            continue
    return look()
