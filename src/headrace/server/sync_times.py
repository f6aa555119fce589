"""How long syncs of the disk took: counted in buckets, as Prometheus' histograms have them."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class SyncTimes:
    """Written by one thread, read by others at any time."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """For each bound, how many took no longer."""
        found, so_far = [], 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self._counts, strict=True):
            so_far += count
            found.append((bound, float(so_far)))
        return found
