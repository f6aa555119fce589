"""Backoff: how long to pause after so many attempts. A pure function; whoever pauses adds the waiting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_s` after the first attempt, then `factor` times as long each time, up to `longest_s`."""

    first_s: float = 10.0
    factor: float = 2.0
    longest_s: float = 3600.0

    def pause_s(self, attempts: int) -> float:
        try:
            return float(min(self.longest_s, self.first_s * self.factor ** max(0, attempts - 1)))
        except OverflowError:
            return self.longest_s

    def pause_us(self, attempts: int) -> int:
        return round(self.pause_s(attempts) * 1_000_000)
