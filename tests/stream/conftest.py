"""Where the streams of these tests live: in memory, if the machine has such a place; syncs are free there."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr

MEMORY = "/dev/shm"


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory."""
    usable = os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK)
    path = Path(tempfile.mkdtemp(prefix="headrace-stream-", dir=MEMORY if usable else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def store(place: Path) -> Iterator[hr.Store]:
    with hr.open(place / "data") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Recovery warns of what it cuts, and listeners of callbacks that raise: these tests do both all day."""
    loggers = [logging.getLogger(name) for name in ("headrace.log", "headrace.stream")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
