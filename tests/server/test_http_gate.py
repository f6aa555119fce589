"""The gate of a node while its tokens cannot be read: closed for strangers, and open again by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.kernel.errors import DiskFailed
from headrace.server.tokens import TokenFile
from waiting import until

from .http_node import served

pytestmark = pytest.mark.usefixtures("quiet_log")


@pytest.mark.parametrize("verb", ["state", "tokens"])
@pytest.mark.parametrize("error", [DiskFailed("somewhere: too many open files"), OSError(13, "no")])
def test_a_node_looks_again_at_tokens_that_it_could_not_read(
    place: Path, monkeypatch: pytest.MonkeyPatch, verb: str, error: Exception
) -> None:
    with hr.open(place / "store"):
        pass
    tokens = TokenFile(place / "store")
    first = tokens.create("first", ["admin:*"]).secret
    with served(place / "store") as node:
        ask = node.ask.by(first)
        assert ask("GET", "/streams").status == 200
        whole, fails = getattr(TokenFile, verb), [0]

        def failing(file: TokenFile) -> object:
            fails[0] += 1
            raise error

        monkeypatch.setattr(TokenFile, verb, failing)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(TokenFile, verb, whole)
            second = tokens.create("second", ["read:*"]).secret
        until(lambda: fails[0] > 2)
        answer = ask("GET", "/streams")
        assert "somewhere" not in answer.body.decode()
        if isinstance(error, DiskFailed):
            assert answer.error == "broken"
        monkeypatch.setattr(TokenFile, verb, whole)
        until(lambda: node.ask.by(second)("GET", "/streams").status == 200)
        tokens.revoke("first")
        until(lambda: ask("GET", "/streams").status == 401)


def test_a_change_of_the_owner_is_a_change(place: Path) -> None:
    with hr.open(place / "store"):
        pass
    tokens = TokenFile(place / "store")
    tokens.create("first", ["admin:*"])
    before = tokens.state()
    (place / "store" / "tokens.json").chmod(0o640)
    assert tokens.state() != before
