"""Where a node is, and the connection to it that a process of Spark's has.

An address is sent to workers, so it holds names only. Each process has one line to a node, made when it is
first used; a worker that was forked makes its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.client.aio import AsyncStore
from headrace.client.aio_stream import AsyncStream
from headrace.client.history_parts import HistoryParts
from headrace.client.loop_thread import LoopThread
from headrace.client.node_line import NodeLine, Patience
from headrace.client.parts import StreamParts
from headrace.client.remote import RemoteStore, connect
from headrace.client.remote_stream import RemoteStream
from headrace.client.staged_parts import Noun, StagedParts
from headrace.kernel.errors import NotFound
from headrace.log.meta import Meta
from headrace.stream.agreement import stored_declaration

T = TypeVar("T")
_LANDING_S = 900.0
"""A large batch takes its time to land; the node is at work on it."""
_lock = threading.Lock()
_lines: dict[tuple[int, NodeAddress], AsyncStore] = {}


@dataclass(frozen=True, slots=True)
class NodeAddress:
    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    away_s: float = 60.0
    """How long a node that is away is waited for."""

    @contextlib.contextmanager
    def connected(self) -> Iterator[RemoteStore]:
        """The store of the node; CannotConnect at once if nobody is there."""
        with connect(self.url, self.token, ca=self.ca, patience=self._patience) as store:
            yield store

    def run(self, work: Callable[[AsyncStore], Coroutine[Any, Any, T]]) -> T:
        """Ask the node for something, and wait for it."""
        return LoopThread.shared().run(work(self._store()))

    def check(self) -> None:
        """Return if the node answers; CannotConnect at once, and what else is wrong, if it does not."""
        self.run(lambda store: store.ready())

    def parts(self, name: str) -> StreamParts:
        return StreamParts(self._store().line, name)

    def staged(self, noun: Noun, name: str) -> StagedParts:
        return StagedParts(self._store().line, noun, name)

    def history(self, journal: str) -> HistoryParts:
        return HistoryParts(self._store().line, journal)

    def stream(self, name: str) -> RemoteStream:
        """The stream as it is now."""
        meta = self.meta(name)
        found = AsyncStream(self._store().line, name, stored_declaration(meta), meta)
        return RemoteStream(LoopThread.shared(), found)

    def meta(self, name: str) -> Meta:
        """What the node has stored of a stream, or NotFound with those that are there."""
        try:
            return self.run(lambda store: store.meta(name))
        except NotFound:
            there = ", ".join(self.run(lambda store: store.streams())[:5]) or "none"
            raise NotFound(
                f"there is no stream {name!r} at {self.url}: check the option 'stream' (there are: {there})"
            ) from None

    @property
    def _patience(self) -> Patience:
        return Patience(connect_s=min(10.0, self.away_s), answer_s=_LANDING_S, away_s=self.away_s)

    def _store(self) -> AsyncStore:
        with _lock:
            at = os.getpid(), self
            if at not in _lines:
                line = NodeLine(self.url, self.token, ca=self.ca, patience=self._patience)
                _lines[at] = AsyncStore(line)
            return _lines[at]


@atexit.register
def _close_lines() -> None:
    """Connections end with the process that made them, and not with a warning."""
    for (process, _), store in list(_lines.items()):
        if process == os.getpid():
            with contextlib.suppress(Exception):
                LoopThread.shared().run(store.close())
