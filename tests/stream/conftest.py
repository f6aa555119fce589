"""A store of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr


@pytest.fixture
def store(place: Path) -> Iterator[hr.Store]:
    with hr.open(place / "data") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _quiet(quiet_log: None) -> None: ...
