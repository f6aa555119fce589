"""Jobs that somebody asks for: one, or many by columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

from headrace.journal.series import each


class NewJob(NamedTuple):
    resource: bytes
    domain: str
    priority: int
    due: int
    type: int
    value: bytes
    stamp: int | None
    """None: now, and later than what is there, whatever the clock says."""
    expires: int | None = None
    persist: bool = True


AnyJob = NewJob | tuple[bytes, str, int, int, int, bytes, int | None, int | None, bool]
"""A plain tuple of the same is made in half the time."""


class NewJobs(NamedTuple):
    """Many, which last and do not expire. What is a list has one for each; all else is the same for all."""

    resource: list[bytes]
    domain: str | list[str]
    priority: int | list[int]
    due: int | list[int]
    type: int | list[int]
    value: bytes | list[bytes]
    stamp: int | None

    def jobs(self) -> Iterator[AnyJob]:
        """One after the other."""
        columns: Iterator[Any] = map(each, self)
        return zip(*columns, repeat(None), repeat(True))

    def part(self, begin: int, end: int) -> NewJobs:
        """Those from `begin` up to `end`."""
        return NewJobs._make(column[begin:end] if isinstance(column, list) else column for column in self)
