"""Listening: the verbs with which a stream is read, whether it is in a directory or on a node.

What differs is only where batches come from: a `Scanning`. Everything else, from batches to objects, threads
and ends, is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from headrace.kernel.errors import Closed
from headrace.log.cursor import OnDamage
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.log.segment_reader import Batch
from headrace.log.segment_reader import Head as LogHead
from headrace.stream.declaration import Declaration
from headrace.stream.entry import Entry, EntryMaker, Head, OnUnknown
from headrace.stream.listener import Listener
from headrace.stream.places import START, Place, check_count
from headrace.stream.scan import Scanning


class Listening(ABC):
    """What a stream is, and how it is read."""

    def __init__(self, name: str, declaration: Declaration) -> None:
        self.name = name
        self._declaration = declaration
        self._listeners: list[Listener] = []
        self._closed = False

    @abstractmethod
    def _scan(
        self,
        start: Place,
        until: Place,
        *,
        follow: bool,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> Scanning:
        """Where batches come from."""

    @property
    @abstractmethod
    def _meta(self) -> Meta: ...

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns that listeners get: what is stored, and what is declared and not stored yet."""

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
        check_count(count)
        maker = EntryMaker(self._declaration, on_unknown)
        batches = self.listen_batches(start, until=until, follow=follow, on_damage=on_damage)
        entries = chain.from_iterable(chain.from_iterable(map(maker.runs, batches)))
        return entries if count is None else islice(entries, count)

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
        check_count(count)
        scan = self._scan(start, until, follow=True, on_damage=on_damage)
        maker = EntryMaker(self._declaration, on_unknown)
        listener = Listener(scan, maker, callback, on_head, self.key_of, count)
        self._listeners = [each for each in self._listeners if each.state != "ended"]
        self._listeners.append(listener)
        listener.start()
        return listener

    @property
    def order_by(self) -> str | None:
        return self._meta.order_by

    def key_of(self, key: int) -> Any:
        """An order key from the 64 bits that sort the same."""
        order_by = self._meta.order_by
        return key if order_by is None else KeyColumn(self._meta.schema, order_by).decode(key)

    def _stop_listeners(self) -> None:
        """Let the calls that are under way end."""
        for listener in self._listeners:
            listener.stop()
        for listener in self._listeners:
            listener.join()

    def _items(
        self,
        start: Place,
        until: Place,
        follow: bool,
        columns: Sequence[str] | None,
        on_damage: OnDamage | None,
    ) -> Iterator[Batch | LogHead]:
        self._check()
        scan = self._scan(start, until, follow=follow, columns=columns, on_damage=on_damage)
        try:
            while not scan.done:
                item = None if scan.stopped else scan.next()
                if item is not None:
                    yield item
                elif scan.stopped and not follow:
                    raise Closed(f"the stream {self.name!r} was closed before all of it was read")
                elif scan.stopped or not (follow or scan.done):
                    return
                elif not scan.done:
                    scan.wait()
        finally:
            scan.close()

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"the stream {self.name!r} is closed")
