"""Streams: a log with a declared type and an order key.

    orders = store.stream("orders", Order, order_by="at")
    with orders.publisher() as publisher: publisher.publish(Order(...))
    for entry in orders.listen(start=hr.at_key(t0), follow=True): ...

A stream opened this way takes no lock: any number of processes listen, and one at a time publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.kernel.errors import Closed, WriterTaken
from headrace.log.cursor import OnDamage
from headrace.log.damage import Report
from headrace.log.info import LogInfo
from headrace.log.keys import KeyColumn
from headrace.log.log import Log
from headrace.log.segment_reader import Batch
from headrace.log.verify import Progress
from headrace.stream.declaration import Declaration
from headrace.stream.entry import Entry, EntryMaker, Head, OnUnknown
from headrace.stream.errors import PublisherTaken
from headrace.stream.evolve import check_evolution
from headrace.stream.listener import Listener
from headrace.stream.places import START, Place
from headrace.stream.publisher import Publisher
from headrace.stream.required import grown_extra
from headrace.stream.scan import Scan
from headrace.stream.unique import UniqueIds


class Stream:
    def __init__(self, name: str, path: Path, declaration: Declaration) -> None:
        """Use `Store.stream`."""
        self.name = name
        self._path = path
        self._declaration = declaration
        self._log = Log.open(path, read_only=True)
        self._schema = check_evolution(self._log.meta, declaration, name)
        """What is in the stream and what is declared: entries are read through it."""
        self._older: list[Log] = []
        self._publishers: list[Publisher] = []
        self._listeners: list[Listener] = []
        self._closed = False

    # --- publishing

    def publisher(self, *, take_over: bool = False) -> Publisher:
        """The stream's one publisher, or PublisherTaken.

        `take_over` takes it from whoever has it: that one can publish and acknowledge nothing more.
        """
        self._check()
        try:
            log = Log.open(self._path, take_over=take_over)
        except WriterTaken as error:
            raise PublisherTaken(f"stream {self.name!r}: {error}") from error
        try:
            schema = check_evolution(log.meta, self._declaration, self.name)
            extra = grown_extra(log.meta, self._declaration, self.name)
            if not schema.equals(log.schema) or extra != log.meta.extra:
                log.evolve(schema, extra)
                self._reopen()
            unique_by, window = self._unique()
            unique = UniqueIds(log, unique_by, window) if unique_by else None
            publisher = Publisher(log, self._declaration, unique, unique_by, self._released)
        except BaseException:
            log.close()
            raise
        self._publishers.append(publisher)
        return publisher

    # --- listening

    def listen(
        self,
        start: Place = START,
        *,
        until: Place = None,
        count: int | None = None,
        follow: bool = False,
        on_unknown: OnUnknown = "error",
        on_damage: OnDamage | None = None,
    ) -> Iterator[Entry]:
        """The entries from `start`: until a place, so many of them, or for ever with `follow`."""
        maker = EntryMaker(self._declaration, on_unknown)
        batches = self.listen_batches(start, until=until, follow=follow, on_damage=on_damage)
        return islice(chain.from_iterable(map(maker.entries, batches)), count)

    def listen_batches(
        self,
        start: Place = START,
        *,
        until: Place = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Iterator[Batch]:
        """The same as Arrow record batches, of all columns or some."""
        for item in self._items(start, until, follow, columns, on_damage):
            if isinstance(item, Batch):
                yield item

    def listen_with_heads(
        self, start: Place = START, *, until: Place = None, follow: bool = False
    ) -> Iterator[Entry | Head]:
        """The entries, and between them each move of HEAD."""
        maker = EntryMaker(self._declaration)
        for item in self._items(start, until, follow, None, None):
            if isinstance(item, Batch):
                yield from maker.entries(item)
            else:
                yield Head(self.key_of(item.key), item.next_index)

    def listener(
        self,
        callback: Callable[[Entry], Any],
        start: Place = START,
        *,
        until: Place = None,
        count: int | None = None,
        on_head: Callable[[Head], Any] | None = None,
        on_unknown: OnUnknown = "error",
        on_damage: OnDamage | None = None,
    ) -> Listener:
        """Call `callback` for each entry, in a thread of its own, until it is told to stop."""
        self._check()
        scan = Scan(self._log, self._schema, start, until, on_damage=on_damage)
        maker = EntryMaker(self._declaration, on_unknown)
        listener = Listener(scan, maker, callback, on_head, self.key_of, count)
        self._listeners = [each for each in self._listeners if each.state != "ended"]
        self._listeners.append(listener)
        listener.start()
        return listener

    # --- what it knows of itself

    @property
    def schema(self) -> pa.Schema:
        """The columns that listeners get: what is stored, and what is declared and not stored yet."""
        return self._schema

    @property
    def order_by(self) -> str | None:
        return self._log.meta.order_by

    @property
    def head(self) -> Any:
        """HEAD as no power cut can take it back: no later entry has a smaller order key. None: not known."""
        key = self._log.settled.head_key
        return self.key_of(key) if key and self.order_by is not None else None

    def key_of(self, key: int) -> Any:
        """An order key from the 64 bits that sort the same."""
        order_by = self._log.meta.order_by
        return key if order_by is None else KeyColumn(self._log.schema, order_by).decode(key)

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
        for listener in self._listeners:
            listener.stop()
        for listener in self._listeners:
            listener.join()
        with ExitStack() as closing:  # all of them are closed, even if one cannot flush
            for log in (self._log, *self._older):
                closing.callback(log.close)
            for publisher in list(self._publishers):
                closing.callback(publisher.close)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside

    def _items(
        self,
        start: Place,
        until: Place,
        follow: bool,
        columns: Sequence[str] | None,
        on_damage: OnDamage | None,
    ) -> Iterator[Any]:
        self._check()
        scan = Scan(self._log, self._schema, start, until, columns=columns, on_damage=on_damage)
        try:
            while not scan.done:
                if scan.stopped:
                    return
                item = scan.next()
                if item is not None:
                    yield item
                elif not scan.done and (not follow or (not scan.wait() and scan.stopped)):
                    return
        finally:
            scan.close()

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

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"the stream {self.name!r} is closed")
