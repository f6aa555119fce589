"""Every test here may open journals; what their logs warn of is not the point."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quiet(quiet_log: None) -> None: ...
