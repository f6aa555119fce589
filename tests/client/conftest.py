"""A server for each test that wants one; and no test here depends on timing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from headrace.client.fj import FjClient, connect

from .stand_in import StandIn

settings.register_profile("no deadline", deadline=None, derandomize="HEADRACE_CAMPAIGN" not in os.environ)
settings.load_profile("no deadline")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn().serving() as server:
        yield server


@pytest.fixture
def client(server: StandIn) -> Iterator[FjClient]:
    with connect(port=server.port, timeout=10) as client:
        yield client
