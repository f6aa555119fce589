"""A store of its own for each test of `headrace stream`: in memory if it can be, where syncs are free."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.streaming import Streams

MEMORY = "/dev/shm"


@pytest.fixture
def streams() -> Iterator[Streams]:
    usable = os.path.isdir(MEMORY) and os.access(MEMORY, os.W_OK)
    path = Path(tempfile.mkdtemp(prefix="headrace-cli-", dir=MEMORY if usable else None))
    yield Streams(path / "store")
    shutil.rmtree(path, ignore_errors=True)
