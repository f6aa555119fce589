"""The blocking client of a node: the nouns and verbs of `hr.open`, over HTTP.

    with hr.connect("http://localhost:7400") as store:
        orders = store.stream("orders", Order, order_by="at")
        with orders.publisher() as publisher: publisher.publish(Order(...))
        for entry in orders.listen(follow=True): ...
        with store.journal("pages").next(lease="2h") as job: ...

A node that is away for a moment is waited for, and nothing is published twice for it. What a program reads
comes again where it was.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from headrace.client.aio import AsyncStore
from headrace.client.aio_stream import AsyncStream
from headrace.client.blocking import FjClient
from headrace.client.fj_upgrade import plain_line
from headrace.client.loop_line import LoopLine
from headrace.client.loop_thread import LoopThread
from headrace.client.node_line import NodeLine, Patience
from headrace.client.remote_journal import RemoteJournal
from headrace.client.remote_stream import RemoteStream
from headrace.journal.settings import JournalSettings
from headrace.kernel.errors import Closed
from headrace.kernel.names import checked_name
from headrace.log.meta import Meta
from headrace.log.settings import Settings
from headrace.stream.agreement import StreamConfig

T = TypeVar("T")
TOKEN_VARIABLE = "HEADRACE_TOKEN"


def connect(
    url: str,
    token: str | None = None,
    *,
    ca: str | Path | None = None,
    patience: Patience | None = None,
) -> RemoteStore:
    """The store of the node at `url`; CannotConnect if nobody answers there.

    `token` is what `headrace token create` printed (or the environment's HEADRACE_TOKEN). `ca` is a file with
    certificates to trust, for a node with one of its own making.
    """
    token = token or os.environ.get(TOKEN_VARIABLE)
    store = AsyncStore(NodeLine(url, token, ca=ca, patience=patience))
    loop = LoopThread.shared()
    try:
        loop.run(store.ready())
    except BaseException:
        loop.run(store.close())
        raise
    return RemoteStore(loop, store)


class RemoteStore:
    def __init__(self, loop: LoopThread, store: AsyncStore) -> None:
        """Use `connect`."""
        self.url = store.url
        self._loop = loop
        self._store = store
        self._lock = threading.Lock()
        self._open: list[RemoteStream] = []
        self._journals: dict[str, RemoteJournal] = {}
        self._closed = False

    def stream(
        self,
        name: str,
        type: Any = None,  # noqa: A002
        order_by: str | Callable[[Any], Any] | None = None,
        *,
        strict: bool = False,
        unique_by: str | None = None,
        unique_window: int | None = None,
        settings: Settings | None = None,
    ) -> RemoteStream:
        """The stream `name`: created with this type, or checked against what is there.

        Without a type an existing stream is opened by what is stored of it; its entries are dicts then.
        """
        return self._opened(
            self._store.stream(
                name,
                type,
                order_by,
                strict=strict,
                unique_by=unique_by,
                unique_window=unique_window,
                settings=settings,
            )
        )

    def create(self, name: str, config: StreamConfig) -> RemoteStream:
        """A new stream; StreamExists if there is one of that name."""
        return self._opened(self._store.create(name, config))

    def ensure(self, name: str, config: StreamConfig) -> RemoteStream:
        """The stream `name` with exactly this configuration: created, or SchemaMismatch / BadSettings."""
        return self._opened(self._store.ensure(name, config))

    def streams(self) -> list[str]:
        """The names of all streams that the token may see."""
        return self._run(self._store.streams())

    def meta(self, name: str) -> Meta:
        """What is stored of a stream; NotFound if there is none."""
        return self._run(self._store.meta(name))

    def drop(self, name: str) -> None:
        """Remove a stream and all its entries. Nobody may be publishing to it."""
        self._run(self._store.drop(name))

    def journal(self, name: str, settings: JournalSettings | None = None) -> RemoteJournal:
        """The journal `name`, made if there is none. `settings`, if given, replace what it had.

        BadSettings if the node has it in use with others. In this store it is one object, whoever asks.
        """
        checked_name(name, "journal name")
        with self._lock:
            if self._closed:
                raise Closed(f"the store {self.url} is closed")
            journal = self._journals.get(name)
            if journal is None or journal.closed or (settings is not None and settings != journal.settings):
                journal = RemoteJournal(self._loop, self._store.line, name, settings)
                self._journals[name] = journal
        return journal

    def fj(self, name: str) -> FjClient:
        """The journal `name`, made if there is none, by its own protocol: the quickest for small requests."""
        self._run(self._store.ensure_journal(name))
        line = self._store.line
        if line.tls is None:
            return FjClient(plain_line(line, name))
        return FjClient(LoopLine(self._loop, self._run(self._store.fj_link(name))))

    def journals(self) -> list[str]:
        """The names of all journals that the token may see."""
        return self._run(self._store.journals())

    def has_journal(self, name: str) -> bool:
        return self._run(self._store.has_journal(name))

    def close(self) -> None:
        """Close every stream and journal that was opened here: listeners end, publishers flush."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            streams, self._open = self._open, []
            journals, self._journals = self._journals, {}
        with ExitStack() as closing:  # all of them are closed, even if one cannot flush
            closing.callback(lambda: self._loop.run(self._store.close()))
            for stream in streams:
                closing.callback(stream.close)
            for journal in journals.values():
                closing.callback(journal.close)

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _opened(self, opening: Coroutine[Any, Any, AsyncStream]) -> RemoteStream:
        stream = RemoteStream(self._loop, self._run(opening))
        with self._lock:
            self._open.append(stream)
        return stream

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise Closed(f"the store {self.url} is closed")
        return self._loop.run(work)
