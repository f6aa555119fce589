"""Where the logs of these tests live: in memory, if the machine has such a place; syncs are free there."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.log import large_group

MEMORY = "/dev/shm"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory."""
    usable = os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK)
    path = Path(tempfile.mkdtemp(prefix="headrace-crash-", dir=MEMORY if usable else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large groups are written in portions: here each batch is one."""
    monkeypatch.setattr(large_group, "_PORTION_BYTES", 1)


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Recovery warns of what it cuts, which is what these tests do all the time."""
    logger = logging.getLogger("headrace.log")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
