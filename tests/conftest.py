"""Where tests put their data, and which run where, when there are several workers.

Each worker that runs a test with Spark starts a Java of its own, which takes seconds and both cores. So the
tests with a session share one worker, and those that start programs with a session of their own another
one.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_TOGETHER = {
    "tests/spark/": "spark",
    "tests/cli/test_spark": "spark",
    "tests/docs/test_examples": "programs",
    "tests/docs/test_snippets": "programs",
}


MEMORY = "/dev/shm"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory: in memory, if the machine has such a place; syncs are free there."""
    usable = os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK)
    path = Path(tempfile.mkdtemp(prefix="headrace-", dir=MEMORY if usable else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def quiet_log() -> Iterator[None]:
    """Recovery warns of what it cuts, listeners of callbacks that raise: some tests do that all day."""
    loggers = [logging.getLogger(name) for name in ("headrace.log", "headrace.stream")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((name for path, name in _TOGETHER.items() if nodeid.startswith(path)), nodeid)

    return Together(config, log)
