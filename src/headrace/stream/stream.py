"""Streams: a log with a declared type and an order key.

    orders = store.stream("orders", Order, order_by="at")
    with orders.publisher() as publisher: publisher.publish(Order(...))
    for entry in orders.listen(start=hr.at_key(t0), follow=True): ...

A stream opened this way takes no lock: any number of processes listen, and one at a time publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.kernel.errors import NotFound, WriterTaken
from headrace.log.appender import Told
from headrace.log.cursor import OnDamage
from headrace.log.damage import Report
from headrace.log.info import LogInfo
from headrace.log.log import Log
from headrace.log.meta import Meta
from headrace.log.verify import Progress
from headrace.stream.declaration import Declaration
from headrace.stream.errors import PublisherTaken
from headrace.stream.evolve import check_evolution
from headrace.stream.id_index import open_ids
from headrace.stream.listening import Listening
from headrace.stream.places import Place
from headrace.stream.publisher import Publisher
from headrace.stream.required import grown_extra
from headrace.stream.scan import Scan


class Stream(Listening):
    def __init__(
        self, name: str, path: Path, declaration: Declaration, on_close: Callable[[Stream], None]
    ) -> None:
        """Use `Store.stream`."""
        super().__init__(name, declaration)
        self._path = path
        self._on_close = on_close
        self._log = Log.open(path, read_only=True)
        self._schema = check_evolution(self._log.meta, declaration, name)
        """What is in the stream and what is declared: entries are read through it."""
        self._older: list[Log] = []
        self._publishers: list[Publisher] = []

    # --- publishing

    def publisher(
        self, *, take_over: bool = False, background: bool = True, told: Told | None = None
    ) -> Publisher:
        """The stream's one publisher, or PublisherTaken.

        `take_over` takes it from whoever has it: that one can publish and acknowledge nothing more. Entries
        are written in the background; without `background`, only when `flush` is called. `told` is told of
        batches and moves of HEAD as they are written.
        """
        self._check()
        try:
            log = Log.open(self._path, take_over=take_over)
        except WriterTaken as error:
            raise PublisherTaken(f"stream {self.name!r}: {error}") from error
        try:
            if log.meta.id != self._log.meta.id:  # what is declared here was never agreed on with that one
                raise NotFound(
                    f"the stream {self.name!r} was dropped, and there is another one now: open it again"
                )
            schema = check_evolution(log.meta, self._declaration, self.name)
            extra = grown_extra(log.meta, self._declaration, self.name)
            if not schema.equals(log.schema) or extra != log.meta.extra:
                log.evolve(schema, extra)
                self._reopen()
            unique_by, window = self._unique()
            unique = open_ids(log, unique_by, window) if unique_by else None
            if told is not None:
                log.tell(told)
            publisher = Publisher(
                log,
                self._declaration,
                strict=log.meta.strict,
                unique=unique,
                unique_by=unique_by,
                on_close=self._released,
                background=background,
            )
        except BaseException:
            log.close()
            raise
        self._publishers.append(publisher)
        return publisher

    # --- what it knows of itself

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def head(self) -> Any:
        """HEAD as no power cut can take it back: no later entry has a smaller order key. None: not known."""
        key = self._log.settled.head_key
        return self.key_of(key) if key and self.order_by is not None else None

    @property
    def next_index(self) -> int:
        return self._log.next_index

    @property
    def durable_index(self) -> int:
        return self._log.durable_index

    @property
    def log(self) -> Log:
        """The log below, to be read."""
        return self._log

    def info(self) -> LogInfo:
        return self._log.info()

    def verify(self, progress: Progress | None = None) -> Report:
        return self._log.verify(progress)

    # --- the end

    def close(self) -> None:
        """Let the calls of listeners that are under way end, then flush and release the publisher."""
        if self._closed:
            return
        self._closed = True
        self._stop_listeners()
        with ExitStack() as closing:  # all of them are closed, even if one cannot flush
            closing.callback(self._on_close, self)
            for log in (self._log, *self._older):
                closing.callback(log.close)
            for publisher in list(self._publishers):
                closing.callback(publisher.close)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside

    def _scan(
        self,
        start: Place,
        until: Place,
        *,
        follow: bool,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Scan:
        return Scan(self._log, self._schema, start, until, columns=columns, on_damage=on_damage)

    @property
    def _meta(self) -> Meta:
        return self._log.meta

    def _released(self, publisher: Publisher) -> None:
        if publisher in self._publishers:
            self._publishers.remove(publisher)

    def _unique(self) -> tuple[str | None, int | None]:
        stored = self._log.meta.extra.get("stream", {})
        return stored.get("unique_by"), stored.get("unique_window")

    def _reopen(self) -> None:
        """See the stream's schema as it is now. Scans that are under way keep their own."""
        self._older.append(self._log)
        self._log = Log.open(self._path, read_only=True)
        self._schema = check_evolution(self._log.meta, self._declaration, self.name)
