"""Waiting in tests: for what another thread or process does soon, without knowing when."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60
"""Far longer than anything takes, on a busy machine, too: a test that waits for so long has failed."""


def until(happened: Callable[[], object], what: str = "it") -> None:
    """Return when `happened` is true; fail if it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.002)
