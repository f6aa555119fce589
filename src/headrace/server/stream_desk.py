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
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headrace.kernel.errors import Busy, Closed
from headrace.log.cursor import Cursor
from headrace.log.log import Log
from headrace.log.segment_reader import Batch, Head
from headrace.server.broadcast import Broadcast
from headrace.server.publisher_lease import PublisherLease
from headrace.server.sync_times import SyncTimes
from headrace.stream.publisher import Published, Publisher
from headrace.stream.stream import Stream

QUEUE_BYTES = 64 << 20
_logger = logging.getLogger("headrace.server")
_LOOK_S = 0.5
"""How often a thread that waits looks whether it is over."""


Work = Callable[[Publisher], Any]
Answer = Callable[[Any], None]
"""Is given what came of something, in the loop: an exception, if it failed."""
Check = Callable[[], None]


class _Wanted(NamedTuple):
    work: Work
    size: int
    answer: Answer


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
        self._lone = False
        """Whether the publishing thread has one thing to do only."""
        self._awaited = False
        """Whether anybody has asked for the next move since the last one."""

    def counted(self, done: tuple[Published, int]) -> Published:
        """What came of `publishing`, in the figures of the stream."""
        published, records_bytes = done
        if not published.repeated:
            self.published_entries += published.next_index - published.base_index
            self.published_bytes += records_bytes
        return published

    @property
    def log(self) -> Log:
        return self.stream.log

    def swept(self) -> int:
        """Nothing of a stream stops counting before it is removed."""
        return 0

    def next_move(self) -> asyncio.Event:
        """Set when the stream moves after now, or is closed: taken before looking, waited for after."""
        if self._watching is None:
            self._watching = begun(self._watch, "headrace-watch")
        self._awaited = True
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

    async def ask(self, work: Work, size: int = 0, check: Check | None = None) -> Any:
        """Have something done by the publishing thread; answered when everything before it is durable."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        while not self.place(work, size, partial(_settle, answer), check):
            await self.room()
        return await answer

    def place(self, work: Work, size: int, answer: Answer, check: Check | None) -> bool:
        """The same without waiting: give it its place behind all that came before. False: there is no room.

        `size` is what is held until it is answered. `check` says, by raising, whether it may be done.
        """
        if self._closing:
            raise Closed(f"the stream {self.stream.name!r} is being closed: try again later")
        if self._queued_bytes >= QUEUE_BYTES:
            return False
        if check is not None:
            check()
        if self._publishing is None:
            self._publishing = begun(self._publish, "headrace-publish")
        self._queued_bytes += size
        self._queue.put(_Wanted(work, size, answer))
        return True

    async def room(self) -> None:
        """Wait until there may be room."""
        if self._queued_bytes >= QUEUE_BYTES and not self._closing:
            room: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(room)
            await room

    def _answer(self, answered: list[tuple[_Wanted, Any]]) -> None:
        for wanted, result in answered:
            self._queued_bytes -= wanted.size
            wanted.answer(result)
        self._tell_room()

    def _tell_room(self) -> None:
        """Whoever waits for room looks again."""
        while self._waiting:
            room = self._waiting.popleft()
            if not room.done():
                room.set_result(None)

    def _notify(self) -> None:
        """Wake those who wait now; those who come later wait for the next time."""
        self._awaited = False
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
            self._lone = len(wanted) == 1
            results: list[Any] = []
            for each in wanted:
                try:
                    if publisher is None:
                        publisher = self.stream.publisher(background=False, told=self._told)
                        self._held_elsewhere.clear()
                    results.append(each.work(publisher))
                except Exception as error:
                    results.append(error)
            if wanted:
                self.broadcast.pass_on()
                self._tell_waiting()
            try:
                if publisher is not None and wanted:
                    began = time.monotonic()
                    publisher.flush()
                    self.sync_times.add(time.monotonic() - began)
            except Exception as error:  # nobody is told that it is safe
                results = [result if isinstance(result, Exception) else error for result in results]
                self._held_elsewhere.set()
                _let_go(publisher)  # the next request opens another one, which recovers
                publisher = None
            self._soon(self._answer, list(zip(wanted, results, strict=True)))
        if publisher is not None:
            publisher.close()

    def _told(self, items: Sequence[Batch | Head]) -> None:
        """These were written: readers may have them before they are synced, as readers of a directory may.

        What came alone goes on at once; of what came together all goes on in one go.
        """
        self.broadcast.told(items)
        if self._lone and items:
            self.broadcast.pass_on()

    def _tell_waiting(self) -> None:
        """The stream has moved: who waits for that may read."""
        if self._awaited:  # who asks for the next move from now on looks after that, and finds it
            self._soon(self._notify)

    def _watch(self) -> None:
        """Tell readers of what others publish.

        While this desk does, nobody else can, and the files are not watched: every write would wake the
        thread that watches them for the whole process, to no end. Whatever fails, readers are woken, so that
        each finds out by itself, and watching begins again.
        """
        told = ""
        while not self._closing:
            try:
                if self._held_elsewhere.wait(_LOOK_S):
                    self._watch_others()
            except Exception as error:
                if str(error) != told:
                    _logger.error("the stream %s cannot be watched now: %s", self.stream.name, error)
                told = str(error)
                time.sleep(_LOOK_S)
                self._soon(self._notify)

    def _watch_others(self) -> None:
        cursor = self._watched = self.stream.log.cursor(self.stream.log.next_index)
        try:
            moved = True  # perhaps, before the cursor was there
            while self._held_elsewhere.is_set() and not self._closing:
                if moved:
                    self.broadcast.read()
                    self._tell_waiting()
                moved = cursor.wait(_LOOK_S)
        finally:
            cursor.close()

    def _soon(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)


def publishing(
    unpack: Callable[[], pa.RecordBatch | pa.Table], once: tuple[str, int] | None, at: int | None
) -> Callable[[Publisher], tuple[Published, int]]:
    """Publishes entries; what comes of it is to be `counted`.

    They are unpacked by the publishing thread: handing them to another first costs more than that.
    """

    def work(publisher: Publisher) -> tuple[Published, int]:
        records = unpack()
        return publisher.publish_batch(records, once=once, at=at), records.nbytes

    return work


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():  # whoever asked has gone
        return
    if isinstance(result, BaseException):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def begun(work: Callable[[], None], name: str) -> threading.Thread:
    """A thread that is at work, or Busy: whoever comes next tries again."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise Busy(f"this process has as many threads as it may ({error}): try again later") from error
    return thread


def _let_go(publisher: Publisher | None) -> None:
    with contextlib.suppress(Exception):
        if publisher is not None:
            publisher.close()
