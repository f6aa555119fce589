"""The desk of a stream in a node: one thread that publishes for all connections, and one that wakes readers.

Whatever many connections want to publish waits in a queue. The thread takes all of it, appends each batch,
syncs once, and answers everybody: so the cost of a sync is shared, and the event loop never waits for a disk.
The queue is bounded by bytes; who comes when it is full waits.

Readers do not have threads. They read in the node's pool, and wait for the stream's next move: what is
published here is told by the publishing thread, and what others publish by a thread that watches the files.
Those who have caught up get it from the stream's broadcast (`broadcast`).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headrace.kernel.errors import Closed, HeadraceError
from headrace.log.cursor import Cursor
from headrace.log.log import Log
from headrace.server.broadcast import Broadcast
from headrace.server.publisher_lease import PublisherLease
from headrace.server.sync_times import SyncTimes
from headrace.stream.publisher import Published, Publisher
from headrace.stream.stream import Stream

QUEUE_BYTES = 64 << 20
_LOOK_S = 0.5
"""How often a thread that waits looks whether it is over."""


@dataclass(slots=True)
class _Wanted:
    work: Callable[[Publisher], Any]
    size: int
    answer: asyncio.Future[Any]


class Copying(Protocol):
    @property
    def lag(self) -> int:
        """How many settled entries have not been sent yet."""


class StreamDesk:
    noun = "stream"

    def __init__(self, stream: Stream, lease: PublisherLease) -> None:
        self.stream = stream
        self.lease = lease
        self.published_entries = 0
        self.published_bytes = 0
        self.sync_times = SyncTimes()
        self.followers = 0
        self.followed_to: dict[object, int] = {}
        """Of each reader that follows and is not in the broadcast, the index that it gets next."""
        self.copies: set[Copying] = set()
        """Copies of the stream that are being sent to."""
        self.ending = False
        """Whether readers should not wait for more."""
        self._loop = asyncio.get_running_loop()
        self.broadcast = Broadcast(stream, self._soon)
        self._queue: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Who waits for room in the queue."""
        self._queued_bytes = 0
        self._publishing: threading.Thread | None = None
        self._watching: threading.Thread | None = None
        self._watched: Cursor | None = None
        self._held_elsewhere = threading.Event()
        """Set while the stream is not published to by this desk, but perhaps by others."""
        self._held_elsewhere.set()
        self._closing = False
        self._moved = asyncio.Event()

    async def publish(
        self,
        unpack: Callable[[], pa.Table],
        size: int,
        once: tuple[str, int] | None = None,
        *,
        at: int | None = None,
        who: str | None = None,
    ) -> asyncio.Future[tuple[Published, int]]:
        """Publish a table. `who` holds the publisher's lease.

        When this returns, it has its place behind all that came before (see `begin`). What it answers is
        there when it is durable, and is to be `counted`. The table is unpacked by the publishing thread:
        handing it to another first costs more than that. `size` is what is held until then.
        """

        def work(publisher: Publisher) -> tuple[Published, int]:
            table = unpack()
            return publisher.publish_batch(table, once=once, at=at), table.nbytes

        return await self.begin(work, size, lambda: self.lease.check(who))

    def counted(self, done: tuple[Published, int]) -> Published:
        published, table_bytes = done
        if not published.repeated:
            self.published_entries += published.next_index - published.base_index
            self.published_bytes += table_bytes
        return published

    async def head(self, key: Any, who: str | None = None) -> asyncio.Future[None]:
        return await self.begin(lambda publisher: publisher.head(key), 0, lambda: self.lease.check(who))

    @property
    def log(self) -> Log:
        return self.stream.log

    def swept(self) -> int:
        """Nothing of a stream stops counting before it is removed."""
        return 0

    def next_move(self) -> asyncio.Event:
        """Set when the stream moves after now, or is closed: taken before looking, waited for after."""
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, name="headrace-watch", daemon=True)
            self._watching.start()
        return self._moved

    def end_followers(self) -> None:
        """Readers get what is there, and then no more."""
        self.ending = True
        self.broadcast.end()
        self._notify()

    async def close(self) -> None:
        """Publish what was taken, then let the stream go."""
        self._closing = True
        self._tell_room()
        self._queue.put(None)
        self._held_elsewhere.set()  # so that the thread that watches sees that it is over
        if self._watched is not None:
            self._watched.stop()
        self.end_followers()
        for thread in (self._publishing, self._watching):
            if thread is not None:
                await self._loop.run_in_executor(None, thread.join)
        await self._loop.run_in_executor(None, self.broadcast.close)
        await self._loop.run_in_executor(None, self.stream.close)

    # --- in the loop

    async def ask(self, work: Callable[[Publisher], Any], size: int = 0) -> Any:
        """Have something done by the publishing thread; answered when everything before it is durable."""
        return await (await self.begin(work, size))

    async def begin(
        self, work: Callable[[Publisher], Any], size: int = 0, check: Callable[[], None] = lambda: None
    ) -> asyncio.Future[Any]:
        """The same, in two steps: when this returns, it has its place in the order. It waits for room only.

        `check` says, by raising, whether it may still be done then.
        """
        while self._queued_bytes >= QUEUE_BYTES and not self._closing:
            room: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(room)
            await room
        if self._closing:
            raise Closed(f"the stream {self.stream.name!r} is being closed: try again later")
        check()
        self._queued_bytes += size
        if self._publishing is None:
            self._publishing = threading.Thread(target=self._publish, name="headrace-publish", daemon=True)
            self._publishing.start()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put(_Wanted(work, size, answer))
        return answer

    def _answer(self, answered: list[tuple[_Wanted, Any]]) -> None:
        for wanted, result in answered:
            self._queued_bytes -= wanted.size
            if wanted.answer.done():  # whoever asked has gone
                continue
            if isinstance(result, BaseException):
                wanted.answer.set_exception(result)
            else:
                wanted.answer.set_result(result)
        self._tell_room()

    def _tell_room(self) -> None:
        """Whoever waits for room looks again."""
        while self._waiting:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)

    def _notify(self) -> None:
        """Wake those who wait now; those who come later wait for the next time."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # --- in threads of their own

    def _publish(self) -> None:
        publisher: Publisher | None = None
        ending = False
        while not ending:
            taken = [self._queue.get()]
            while not self._queue.empty():
                taken.append(self._queue.get())
            ending = None in taken
            wanted = [each for each in taken if each is not None]
            results: list[Any] = []
            for each in wanted:
                try:
                    if publisher is None:
                        publisher = self.stream.publisher(background=False, told=self.broadcast.told)
                        self._held_elsewhere.clear()
                    results.append(each.work(publisher))
                except Exception as error:
                    results.append(error)
            if wanted:
                self._tell_readers()
            try:
                if publisher is not None and wanted:
                    began = time.monotonic()
                    publisher.flush()
                    self.sync_times.add(time.monotonic() - began)
            except HeadraceError as error:  # nobody is told that it is safe
                results = [result if isinstance(result, Exception) else error for result in results]
                self._held_elsewhere.set()
                _let_go(publisher)  # the next request opens another one, which recovers
                publisher = None
            self._soon(self._answer, list(zip(wanted, results, strict=True)))
        if publisher is not None:
            publisher.close()

    def _tell_readers(self) -> None:
        """The stream has moved: they may read, before it is synced as readers of a directory may."""
        self.broadcast.read()
        if self._watching is not None:
            self._soon(self._notify)

    def _watch(self) -> None:
        """Tell readers of what others publish; while this desk does, nobody else can."""
        cursor = self._watched = self.stream.log.cursor(self.stream.log.next_index)
        try:
            while not self._closing:
                if self._held_elsewhere.wait(_LOOK_S) and cursor.wait(_LOOK_S):
                    self._tell_readers()
        finally:
            cursor.close()

    def _soon(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)


def _let_go(publisher: Publisher | None) -> None:
    with contextlib.suppress(HeadraceError):
        if publisher is not None:
            publisher.close()
