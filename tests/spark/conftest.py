"""One Spark session for all tests of a process, and a store of its own for each test.

Without Java the tests that need it are skipped, and say so.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "/dev/shm"

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(scope="session")
def java() -> None:
    """Skip where there is no Java that Spark runs on."""
    pytest.importorskip("pyspark")
    from headrace.spark.session import JavaMissing, check_java

    try:
        check_java()
    except JavaMissing as missing:
        pytest.skip(f"Spark cannot run here: {missing}")


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    """A session with two cores, in which a task may fail three times before its job does."""
    from headrace.spark import session

    made = session(master="local[2,4]", settings={"spark.driver.host": "localhost"})
    yield made
    made.stop()


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty directory: in memory, if the machine has such a place; syncs are free there."""
    usable = os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK)
    path = Path(tempfile.mkdtemp(prefix="headrace-spark-", dir=MEMORY if usable else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def store(place: Path) -> Iterator[hr.Store]:
    with hr.open(place / "data") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quiet_log() -> Iterator[None]:
    """Recovery warns of what it cuts, which is what these tests do all the time."""
    loggers = [logging.getLogger(name) for name in ("headrace.log", "headrace.stream")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
