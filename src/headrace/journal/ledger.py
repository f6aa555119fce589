"""The ledger: events on their way to the disk.

    operation --> pending --(one write for all)--> tail --(poured, by thousands)--> log

An operation queues its events, under the engine's lock, and then waits for `settle`. With durability "fsync"
the first thread to wait writes what all have queued and syncs it once. Otherwise writing is enough. A thread
in the background pours the tail into the log when it has grown, or is a second old, and syncs at intervals.
While somebody copies the log, it pours what is there every 50 ms.

Room in the tail is reserved before an operation changes anything, so a full disk refuses it and leaves all
as it was. Any other failure of the disk breaks the journal: what was acknowledged is on the disk, and
opening it again finds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
import pyarrow as pa

from headrace.journal.collection import pieces
from headrace.journal.events import Event, Fold, to_batch
from headrace.journal.settings import JournalSettings
from headrace.kernel.errors import Broken, Retryable
from headrace.log.commit import GroupCommit
from headrace.log.log import Log
from headrace.log.tail import TAIL_BYTES, Tail

_NEVER = -1
_POUR_AFTER_S = 1.0
_POUR_SOON_S = 0.05
_BEHIND_BYTES = 16 * TAIL_BYTES
_EVENT_BYTES = 160
"""More than an event takes beside its key and value."""
_BATCH_EVENTS = 65_536
_BATCH_BYTES = 64 << 20


class Ledger:
    def __init__(self, log: Log, tail: Tail, settings: JournalSettings, fold: Mapping[int, Fold]) -> None:
        """`fold` tells for each kind of event how it becomes state."""
        self.upcoming = log.next_index
        """The index that the next event will have."""
        self.poured = log.next_index
        """Every event below it is in the log."""
        self.idle: Callable[[], None] = lambda: None
        """Called by the background thread after each pour."""
        self._log = log
        self._tail = tail
        self._settings = settings
        self.lock = threading.Lock()
        """The engine's: around the state, and what is pending."""
        self.syncs = settings.durability == "fsync"
        """Whether an operation waits for the disk; else it is written, and that is all."""
        self.failure: Broken | None = None
        """Why nothing can be written any more."""
        self.pending_bytes = 0
        self.free = 0
        """How much may be pending before `admit` has to look for room."""
        self._fold = fold
        self._pending: list[Event] = []
        self._unpoured: list[Event] = []
        """What the current file of the tail holds."""
        self._turned: list[Event] = []
        """What the other one holds and the log does not have yet."""
        self._turned_bytes = 0
        self._durable = log.next_index
        self._encode = msgspec.msgpack.Encoder().encode
        self._commit = GroupCommit(self._write_and_sync)
        self._pouring = threading.Lock()
        self._copies = 0
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-journal", daemon=True)
        self._look_for_room()

    def start(self) -> None:
        self._thread.start()

    # --- under the engine's lock

    def admit(self, size: int) -> None:
        """Be sure that `size` bytes of keys and values can be taken, or raise and change nothing.

        Who finds no `failure` and enough `free` need not ask: most operations do not.
        """
        if self.failure is not None:
            raise self.failure
        self._tail.reserve(self.pending_bytes + size + _EVENT_BYTES)
        self._look_for_room()

    def behind(self, size: int) -> bool:
        """Whether the tail should be poured before it takes so much more."""
        used = self._tail.bytes
        return used + self.pending_bytes + size > _BEHIND_BYTES and used > 0

    def emit(self, event: Event, volatile: bool = False) -> None:
        """Fold an event into the state, and queue it for the log if it is not for memory only."""
        kind, _, _, key, _, _, _, _, _, _, _, _, _, value, _, _ = event
        if volatile:
            self._fold[kind](event, _NEVER)
            return
        place = self.upcoming
        self._fold[kind](event, place)
        self._pending.append(event)
        self.pending_bytes += _EVENT_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        self.upcoming = place + 1

    def write(self) -> int:
        """Write what is pending to the tail; the index up to which everything is written."""
        if self._pending:
            events, tail = self._pending, self._tail
            count = len(events)
            try:
                payload = self._encode(events)
                if len(payload) > self.free:
                    tail.reserve(len(payload))
                    self._look_for_room()
                self.free -= tail.write(payload, self.upcoming - count, count, self._durable)
                self._pending, self.pending_bytes = [], 0
            except Retryable:
                raise  # a full disk: they stay pending, and are tried again at the same place
            except Exception as error:  # memory knows more than the disk from here on, whatever it was
                raise self._broken(error) from error
            self._unpoured += events
            if (
                tail.bytes > TAIL_BYTES // 2 and not self._wake.is_set()
            ):  # to set it again takes a microsecond
                self._wake.set()
        return self.upcoming

    # --- without it

    @property
    def settled(self) -> int:
        """Every event below it is as safe as the settings say."""
        return self._durable if self.syncs else self.upcoming

    def settle(self, ticket: int) -> None:
        """Return when every event below `ticket` is on the disk."""
        self._commit.sync(ticket)

    def pour(self) -> None:
        """Everything that is in the tail goes into the log, and the tail is empty."""
        with self._pouring:
            self._append_turned()
            with self.lock:
                self.write()
                if not self._unpoured:
                    return
                unsynced = self._tail.unsynced()
                self._turned, self._unpoured = self._unpoured, []
                self._turned_bytes = self._tail.bytes
                self._tail.turn()
                self._look_for_room()
            if self._settings.durability != "os":  # without the lock: others write to the other file
                self._sync(unsynced)
            self._append_turned()

    @contextmanager
    def copied(self) -> Iterator[None]:
        """While this block runs, the log is being copied: events are poured soon after they came."""
        with self.lock:
            self._copies += 1
        self._wake.set()
        try:
            yield
        finally:
            with self.lock:
                self._copies -= 1

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            if self.failure is None:
                self.pour()
        finally:
            self._tail.close()

    # --- inside

    def _append_turned(self) -> None:
        """What is in the file that had its turn goes into the log; until then the file may not be used."""
        while self._turned:
            count, size = 0, 0
            if len(self._turned) <= _BATCH_EVENTS and self._turned_bytes <= _BATCH_BYTES:
                count = len(self._turned)
            while count < min(len(self._turned), _BATCH_EVENTS) and size < _BATCH_BYTES:
                event = self._turned[count]
                size += len(event.value or b"") + len(event.key or b"")
                count += 1
            parts = [to_batch(self._turned[begin:end]) for begin, end in pieces(count)]
            self._log.append(pa.concat_batches(parts))
            del self._turned[:count]
        self._log.sync(force=self._settings.durability != "os")
        self.poured = self._log.next_index

    def _write_and_sync(self) -> int:
        with self.lock:
            if self.failure is not None:
                raise self.failure
            ticket, unsynced = self.write(), self._tail.unsynced()
        self._sync(unsynced)
        if self.failure is not None:  # a sync beside this one failed: that this one did not proves nothing
            raise self.failure
        self._durable = max(self._durable, ticket)
        return ticket

    def _sync(self, unsynced: list[tuple[int, int]]) -> None:
        try:
            self._tail.sync(unsynced)
        except Broken as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> Broken:
        if self.failure is None:
            self.failure = Broken(f"{self._log.path} could not be written ({error}): open it again")
        return self.failure

    def _look_for_room(self) -> None:
        tail = self._tail
        self.free = min(tail.room, _BEHIND_BYTES - tail.bytes) - _EVENT_BYTES

    def _run(self) -> None:
        interval = self._settings.durability == "interval"
        often = min(_POUR_AFTER_S, self._settings.sync_interval_ms / 1000) if interval else _POUR_AFTER_S
        waited = 0.0
        while not self._closing:
            pause = min(often, _POUR_SOON_S) if self._copies else often
            woken = self._wake.wait(pause)
            self._wake.clear()
            waited += pause
            try:
                if interval:
                    self._sync_interval()
                if woken or waited >= _POUR_AFTER_S:
                    waited = 0.0
                    self.pour()
                    self.idle()
                elif self._copies and (self._pending or self._unpoured):
                    self.pour()
            except Retryable:  # a full disk, or ring: tried again; until then the tail takes what it can hold
                self._make_room()
            except Exception as error:  # of a thread that nobody watches: the next caller is told
                self._broken(error)
                return

    def _make_room(self) -> None:
        try:
            self.idle()
        except Retryable:
            pass  # nothing could be swept that does not have to be said again
        except Exception as error:
            self._broken(error)

    def _sync_interval(self) -> None:
        with self.lock:
            reached, unsynced = self.write(), self._tail.unsynced()
        self._sync(unsynced)
        self._durable = max(self._durable, reached)
