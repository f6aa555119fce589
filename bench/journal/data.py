"""The jobs that are measured: pages of one site, each named by its address and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

DOMAIN = "example.com"
PRIORITY = 128
LEASE_S = 3600
GROUP = 1000
"""Jobs in a batch, a transaction, or a pipeline."""

_numbers = count()


def pages(number: int) -> list[str]:
    """Addresses that were never used before in this run."""
    return [f"https://{DOMAIN}/articles/2026/{n:010}" for n in islice(_numbers, number)]


def groups(resources: list[str], size: int = GROUP) -> Iterator[list[str]]:
    for at in range(0, len(resources), size):
        yield resources[at : at + size]
