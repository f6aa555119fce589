"""Open files: a server has as many as it can get, and strangers' connections leave some for the data."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.server.http_limits import HttpLimits

from .http_node import served

PROGRAM = """
import resource
from headrace.server.open_files import allow_many
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
allow_many()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


def test_a_server_asks_for_as_many_files_as_it_may_have() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


@pytest.mark.parametrize(("files", "most"), [(100, 50), (1 << 20, 8192), (resource.RLIM_INFINITY, 8192)])
def test_connections_are_at_most_half_of_the_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    with served(place / "store", HttpLimits()) as node:
        assert node.server.door.limits.connections == most
        assert node.server.door.limits.connections_per_address == min(most, 4096)
        assert node.ask("GET", "/livez").status == 200
