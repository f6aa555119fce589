"""One Spark session for all tests of a process, and a store of its own for each test.

Without Java the tests that need it are skipped, and say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
def store(place: Path) -> Iterator[hr.Store]:
    with hr.open(place / "data") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quiet(quiet_log: None) -> None: ...
