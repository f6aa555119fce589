"""Names: whatever a peer calls a stream or a journal, nothing is made outside of the place for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel.names import is_name

from .http_node import Served, served

pytestmark = pytest.mark.usefixtures("quiet_log")
CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))
PIECES = [
    b"..",
    b".",
    b"/",
    b"\\",
    b"\0",
    b"%2e",
    b"%2f",
    b"~",
    b"a",
    b"tokens.json",
    b"streams",
    b"\xff",
    b"\n",
    b" ",
]
NAMES = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join) | st.binary(max_size=30)
ROUTES = [
    ("PUT", "/streams/{}", b'{"fields": {"n": "int64"}}'),
    ("POST", "/streams/{}", b'{"n": 1}'),
    ("POST", "/streams/{}/head", b'{"key": 1}'),
    ("DELETE", "/streams/{}", b""),
    ("GET", "/streams/{}/info", b""),
    ("PUT", "/journals/{}", b""),
    ("POST", "/journals/{}/put", b'{"resource": "a"}'),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("outside") / "store") as one:
        yield one


def test_there_is_only_the_store(node: Served) -> None:
    check_inside(node.store.path)


@given(NAMES, st.sampled_from(ROUTES), st.booleans())
@settings(max_examples=5000 if CAMPAIGN else 150, deadline=None)
def test_no_name_leaves_the_data_directory(
    node: Served, name: bytes, route: tuple[str, str, bytes], bare: bool
) -> None:
    method, path, body = route
    sent = quote_from_bytes(name, safe="/." if bare else "")
    answer = node.ask(method, path.replace("{}", sent), body)
    assert answer.status < 500, answer
    check_inside(node.store.path)


def check_inside(store: Path) -> None:
    assert [path.name for path in store.parent.iterdir()] == ["store"]
    assert {path.name for path in store.iterdir()} <= {"store.json", "lock", "streams", "journals"}
    for kind in ("streams", "journals"):
        for path in (store / kind).glob("*"):
            assert is_name(path.name) or path.name.startswith(".dropped-"), path
