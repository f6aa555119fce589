"""What the tests of `headrace journal` share: running it on a store, or on a server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.running import Outcome, headrace

import headrace as hr
from headrace.server.fj import FjServer


@dataclass(frozen=True, slots=True)
class Journals:
    """`headrace journal` with one journal, `pages`: of a store, or of a server."""

    store: Path
    server: str | None = None

    @property
    def over_fj(self) -> bool:
        return self.server is not None and not self.server.startswith("http")

    def run(self, verb: str, *words: str | Path, given: bytes = b"") -> Outcome:
        if self.over_fj:
            assert self.server is not None
            return headrace("journal", verb, "--server", self.server, *words, given=given)
        where = ("--store", self.store) if self.server is None else ("--server", self.server)
        return headrace("journal", verb, *where, "pages", *words, given=given)

    def __call__(self, verb: str, *words: str | Path, given: bytes = b"") -> Outcome:
        """The same, which must succeed."""
        outcome = self.run(verb, *words, given=given)
        assert outcome.code == 0, outcome
        return outcome

    def refused(self, verb: str, *words: str | Path, code: int = 1) -> str:
        """What is said of a command that fails: one line."""
        outcome = self.run(verb, *words)
        assert (outcome.code, outcome.out) == (code, b""), outcome
        assert outcome.err.count("\n") == 1, outcome.err
        return outcome.err

    def json(self, verb: str, *words: str | Path) -> Any:
        return self(verb, *words, "--json").json

    def rows(self, verb: str, *words: str | Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(verb, *words, "--json").lines]


@contextmanager
def served(store: Path) -> Iterator[str]:
    """The address of a server in this process, in a thread of its own."""
    started, ended = threading.Event(), threading.Event()
    addresses: list[str] = []

    async def serve() -> None:
        with hr.open(store) as opened, opened.journal("pages") as journal:
            server = await FjServer.start(journal)
            addresses.append("{}:{}".format(*server.address))
            started.set()
            await asyncio.to_thread(ended.wait)
            await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(30)
        yield addresses[0]
    finally:
        ended.set()
        thread.join(30)
        assert not thread.is_alive()
