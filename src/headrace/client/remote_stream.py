"""A stream on a node, with the verbs of one in a directory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from headrace.client.aio_stream import AsyncStream
from headrace.client.conduits import drive
from headrace.client.feed import Feed, Item, tell
from headrace.client.loop_thread import LoopThread
from headrace.client.plain_conduit import PlainConduit, PlainConduits
from headrace.client.remote_target import RemoteIds, RemoteTarget
from headrace.kernel.errors import HeadraceError
from headrace.log.cursor import OnDamage
from headrace.log.damage import Damage, Report
from headrace.log.info import LogInfo
from headrace.log.meta import Meta
from headrace.log.segment_reader import Batch, Head
from headrace.log.verify import Progress
from headrace.stream.listening import Listening
from headrace.stream.places import Place
from headrace.stream.publisher import Publisher
from headrace.stream.unique import UniqueIds, plain_type


class RemoteStream(Listening):
    def __init__(self, loop: LoopThread, stream: AsyncStream) -> None:
        """Use `RemoteStore.stream`."""
        super().__init__(stream.name, stream.declaration)
        self._loop = loop
        self._stream = stream
        self._publishers: list[Publisher] = []
        self._scans: set[RemoteScan] = set()

    def publisher(self, *, take_over: bool = False, shared: bool = False) -> Publisher:
        """The stream's one publisher, or PublisherTaken.

        `take_over` takes it from whoever has it. `shared` asks for one of several that publish at the same
        time, from anywhere: then indexes are known to the node only, and those that `publish` answers count
        the entries of this publisher.
        """
        self._check()
        conduits = PlainConduits(self._stream.line)
        carrier = self._loop.run(self._stream.carrier(conduits, take_over=take_over, shared=shared))
        words = carrier.meta.extra.get("stream", {})
        unique_by, unique = words.get("unique_by"), None
        if unique_by:
            kind = carrier.meta.schema.field(unique_by).type
            ids = RemoteIds(self._loop, carrier, plain_type(kind))
            unique = UniqueIds(ids, kind, words.get("unique_window"))
        publisher = Publisher(
            RemoteTarget(self._loop, carrier),
            self._declaration,
            strict=carrier.meta.strict,
            unique=unique,
            unique_by=unique_by,
            on_close=self._released,
        )
        self._publishers.append(publisher)
        return publisher

    @property
    def schema(self) -> pa.Schema:
        return self._stream.schema

    @property
    def head(self) -> Any:
        """HEAD as no power cut can take it back: no later entry has a smaller order key. None: not known."""
        return self._loop.run(self._stream.head())

    @property
    def next_index(self) -> int:
        return self._loop.run(self._stream.next_index())

    @property
    def durable_index(self) -> int:
        return self._loop.run(self._stream.durable_index())

    def verify(self, progress: Progress | None = None) -> Report:
        """Have the node read and check every byte of it. `progress` is called by the client's thread."""
        return self._loop.run(self._stream.verify(progress))

    def info(self) -> LogInfo:
        return self._loop.run(self._stream.info())

    def close(self) -> None:
        """Let the calls of listeners that are under way end, then flush and release the publisher."""
        if self._closed:
            return
        self._closed = True
        self._stop_listeners()
        for scan in list(self._scans):
            scan.stop()
        with ExitStack() as closing:  # all of them are closed, even if one cannot flush
            for publisher in list(self._publishers):
                closing.callback(publisher.close)

    def __enter__(self) -> RemoteStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _scan(
        self,
        start: Place,
        until: Place,
        *,
        follow: bool,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> RemoteScan:
        conduits = PlainConduits(self._stream.line)
        feed = self._stream.feed(start, until, follow=follow, columns=columns, conduits=conduits)
        drive(feed.begin())
        scan = RemoteScan(conduits, feed, self._stream.where, follow, on_damage, self._scans.discard)
        self._scans.add(scan)
        return scan

    @property
    def _meta(self) -> Meta:
        return self._stream.meta

    def _released(self, publisher: Publisher) -> None:
        if publisher in self._publishers:
            self._publishers.remove(publisher)


class RemoteScan:
    """A feed as a blocking listener steps through it, on a conduit of the listener's own thread."""

    def __init__(
        self,
        conduits: PlainConduits,
        feed: Feed,
        where: str,
        follow: bool,
        on_damage: OnDamage | None,
        on_close: Callable[[RemoteScan], None],
    ) -> None:
        self.done = False
        self._conduits = conduits
        self._feed = feed
        self._where = where
        self._follow = follow
        self._on_damage = on_damage
        self._on_close = on_close
        self._ready: deque[Item] = deque()
        self._seen = feed.index

    @property
    def index(self) -> int:
        return self._seen

    @property
    def stopped(self) -> bool:
        return self._conduits.stopped

    def next(self) -> Batch | Head | None:
        """The next item; None if there is none yet, which only one that follows is told."""
        while not self.done and not self.stopped:
            if self._ready:
                item = self._ready.popleft()
                if not isinstance(item, Damage):
                    self._seen = item.next_index
                    return item
                self._seen = max(self._seen, item.stop_lost or 0)
                tell(item, self._where, self._on_damage)
            elif not self._take():
                return None
        return None

    def _take(self, *, look: bool = True) -> bool:
        """Take what comes next from the feed; False if this was stopped, or `look` finds nothing yet."""
        try:
            if look and self._follow and self._is_idle():
                return False
            items = drive(self._feed.more())
        except HeadraceError:
            if self.stopped:  # it was let go, and nobody is to be told how
                return False
            raise
        self.done = not items
        self._ready.extend(items)
        return True

    def _is_idle(self) -> bool:
        """Whether all is read that was there, and nothing has come."""
        drive(self._feed.begin())
        conduit = self._feed.conduit
        assert isinstance(conduit, PlainConduit)
        return self._seen >= self._feed.known_next and not conduit.readable(0.0)

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until there may be more; False when the time came first, or this was stopped.

        Without a limit it receives what comes: to look first, and then again, takes longer than to receive.
        """
        conduit = self._feed.conduit
        if self.stopped or self._ready or not isinstance(conduit, PlainConduit):
            return not self.stopped
        if timeout is None:
            self._take(look=False)
            return not self.stopped
        return conduit.readable(timeout) and not self.stopped

    def stop(self) -> None:
        self._conduits.stop()

    def close(self) -> None:
        self.stop()
        self._on_close(self)
        self._feed.close()
