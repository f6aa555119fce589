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
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec

from headrace.journal.checks import KEY_BYTES_MAX
from headrace.journal.events import Event, Fold
from headrace.journal.pouring import append_some, table_of
from headrace.journal.series import Queued, Series, flat
from headrace.journal.settings import JournalSettings
from headrace.kernel.errors import Broken, Closed, Retryable
from headrace.log.commit import GroupCommit
from headrace.log.forks import stays_with_parent
from headrace.log.log import Log
from headrace.log.tail import TAIL_BYTES, Tail

_NEVER = -1
_POUR_AFTER_S = 1.0
_POUR_SOON_S = 0.05
_BEHIND_BYTES = 16 * TAIL_BYTES
_EVENT_BYTES = 160
"""More than an event takes beside its key and value."""
_ONE_MORE_BYTES = KEY_BYTES_MAX + 2 * _EVENT_BYTES
"""Room for an event of any job, or value, beyond what was announced: what became of it, with its key."""
_RECORD_BYTES = 4_000_000_000
"""A record of the tail counts its bytes with 32 bits."""
_RING_BYTES = 16 << 10
"""What a container and a frame need for themselves."""


class Ledger:
    def __init__(
        self,
        log: Log,
        tail: Tail,
        settings: JournalSettings,
        fold: Mapping[int, Fold],
        fold_series: Callable[[Series, int], None],
    ) -> None:
        """`fold` tells for each kind of event how it becomes state, and `fold_series` how many of them do."""
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
        self.volatile_events = 0
        """How many there were for memory only."""
        self.pending_bytes = 0
        self.free = 0
        """How much may be pending before `admit` has to look for room."""
        self._fold, self._fold_series = fold, fold_series
        self._pending: list[Queued] = []
        self._pending_series = 0
        self._written = log.next_index
        """Every event below it is in the tail, or the log."""
        self._unpoured: list[Queued] = []
        """What the current file of the tail holds."""
        self._turned: list[Queued] = []
        """What the other one holds and the log does not have yet."""
        self._turned_bytes = 0
        self._rest = table_of([], 0)
        """The same, once it was made rows of the log."""
        containers = log.meta.settings.containers
        self._container_bytes = None if containers is None else containers.bytes
        self.most = _RECORD_BYTES if containers is None else containers.bytes - _RING_BYTES
        """The largest operation, in bytes, that is whole wherever it is."""
        self._borders: list[int] = []
        """Where there are containers: indexes at which operations begin, no further apart than one holds."""
        self._durable = log.next_index
        """Every event below it was synced because somebody waited for it: what records of the tail say."""
        self._poured_safe = log.next_index  # the same because it was poured, which nobody waits for
        self._encode = msgspec.msgpack.Encoder().encode
        self._commit = GroupCommit(self._write_and_sync)
        self._pouring = threading.Lock()
        self._syncing = threading.Lock()
        self._writing = threading.Lock()
        """Of who writes to the tail without the engine's lock, or turns it; taken before that one."""
        self._copies = 0
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-journal", daemon=True)
        self._look_for_room()

    def start(self) -> None:
        stays_with_parent(self)
        self._thread.start()

    def left_to_parent(self) -> None:
        """See `forks`. The engine has the same lock: it is made free, not another one."""
        self.broken(Closed("the parent of this process has it open"))
        self._wake = threading.Event()
        for lock in (self.lock, self._pouring, self._syncing, self._writing):
            lock._at_fork_reinit()  # type: ignore[attr-defined]

    # --- under the engine's lock

    def admit(self, size: int) -> None:
        """Be sure that `size` bytes of keys and values can be taken, or raise and change nothing.

        Who finds no `failure` and enough `free` need not ask: most operations do not.
        """
        if self.failure is not None:
            raise self.failure
        self._tail.reserve(self.pending_bytes + size + _ONE_MORE_BYTES)
        self._note_border()
        self._look_for_room()

    def admit_more(self, size: int) -> None:
        """`admit` in the midst of an operation, before it changes anything that cannot stay as it is."""
        if self.pending_bytes + size > self.free:
            self._tail.reserve(self.pending_bytes + size + _ONE_MORE_BYTES)
            self._look_for_room()

    def behind(self, size: int) -> bool:
        """Whether the tail should be poured before it takes so much more."""
        used = self._tail.bytes
        return used + self.pending_bytes + size > _BEHIND_BYTES and used > 0

    def emit(self, event: Event, volatile: bool = False) -> None:
        """Fold an event into the state, and queue it for the log if it is not for memory only."""
        kind, _, _, key, _, _, _, _, _, _, _, _, _, value, _, _ = event
        place = _NEVER if volatile else self.upcoming
        try:
            self._fold[kind](event, place)
        except BaseException as error:
            self.broken(error)
            raise
        if volatile:
            self.volatile_events += 1
            return
        self._pending.append(event)
        self.pending_bytes += _EVENT_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        self.upcoming = place + 1

    def emit_series(self, series: Series) -> None:
        """`emit` for many at once, none of them for memory only."""
        try:
            self._fold_series(series, self.upcoming)
        except BaseException as error:
            self.broken(error)
            raise
        self._pending.append(series)
        self._pending_series += 1
        self.pending_bytes += _EVENT_BYTES * series.count + series.bytes
        self.upcoming += series.count

    def write(self, apart: bool = False) -> int:
        """Write what is pending to the tail; the index up to which everything is written.

        `apart`, the engine's lock is let go of meanwhile, for who has `_writing`: see `write_apart`.
        """
        if self._pending:
            if self.failure is not None:  # among them may be a part of an operation
                raise self.failure
            queued, series, size = self._pending, self._pending_series, self.pending_bytes
            count, begin, end, tail = len(queued), self._written, self.upcoming, self._tail
            try:
                payload = self._encode(flat(queued) if series else queued)
                if len(payload) > self.free + _ONE_MORE_BYTES:
                    tail.reserve(len(payload))
                    self._look_for_room()
                if apart:
                    self.lock.release()
                try:
                    written = tail.write(payload, begin, end - begin, self._durable)
                finally:
                    if apart:
                        self.lock.acquire()
            except Retryable:
                raise  # a full disk: they stay pending, and are tried again at the same place
            except Exception as error:  # memory knows more than the disk from here on, whatever it was
                raise self.broken(error) from error
            self._pending = queued[count:] if apart else []  # what came meanwhile
            self._unpoured += queued[:count] if self._pending else queued
            self.free -= written
            self._pending_series -= series
            self.pending_bytes -= size
            self._written = end
            self._note_border()
            if tail.bytes > TAIL_BYTES // 2 and not self._wake.is_set():  # that is quicker than to set it
                self._wake.set()
        return self._written

    # --- without it

    @property
    def settled(self) -> int:
        """Every event below it is as safe as the settings say."""
        return max(self._durable, self._poured_safe) if self.syncs else self.upcoming

    def write_apart(self) -> tuple[int, list[tuple[int, int]]]:
        """`write`, with the engine's lock only before and after it: to write lets go of Python's lock, and
        every thread that got that meanwhile would run as far as to the engine's lock, and sleep.
        How far everything is written, and what of the tail is not synced."""
        if not self.syncs:  # whoever does something then writes it at once, with the engine's lock
            with self.lock:
                return self.write(), self._tail.unsynced()
        with self._writing, self.lock:
            return self.write(apart=True), self._tail.unsynced()

    def settle(self, ticket: int) -> None:
        """Return when every event below `ticket` is on the disk."""
        self._commit.sync(ticket)

    def pour(self, beyond_limit: bool = False) -> None:
        """What is in the tail goes into the log; `beyond_limit`: also into a full ring, to make room."""
        with self._pouring:
            self._append_turned(beyond_limit)
            with self._writing, self.lock:
                self.write()
                if not self._unpoured:
                    return
                reached, unsynced = self.upcoming, self._tail.unsynced()
                self._turned, self._unpoured = self._unpoured, []
                self._turned_bytes = self._tail.bytes
                self._tail.turn()
                self._look_for_room()
            if self._settings.durability != "os":  # without the lock: others write to the other file
                self._sync(unsynced)
                self._poured_safe = reached
            self._append_turned(beyond_limit)

    def broken(self, error: BaseException) -> Broken:
        """Nothing more is written: memory may know what the disk does not, or only a part of an operation."""
        if self.failure is None:
            why = str(error) or type(error).__name__
            self.failure = Broken(f"{self._log.path} could not be written ({why}): open it again")
        return self.failure

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
            with self._syncing:  # or the number of its file could be another file's when it is synced
                self._tail.close()

    # --- inside

    def _append_turned(self, beyond_limit: bool) -> None:
        """What is in the file that had its turn goes into the log; until then the file may not be used."""
        if self._turned:
            self._rest = table_of(self._turned, self._turned_bytes)
            self._turned = []
        while self._rest.num_rows:
            self._rest = append_some(self._log, self._rest, self._borders, beyond_limit=beyond_limit)
        if self._borders:
            with self.lock:
                del self._borders[: bisect_right(self._borders, self._log.next_index)]
        self._log.sync(force=self._settings.durability != "os")
        self.poured = self._log.next_index

    def _write_and_sync(self) -> int:
        if self.failure is not None:
            raise self.failure
        ticket, unsynced = self.write_apart()
        self._sync(unsynced)
        self._durable = max(self._durable, ticket)
        return ticket

    def _sync(self, unsynced: list[tuple[int, int]]) -> None:
        with self._syncing:
            if self.failure is not None:  # the kernel tells one caller only that a sync failed
                raise self.failure
            try:
                self._tail.sync(unsynced)
            except Broken as error:
                raise self.broken(error) from error

    def _look_for_room(self) -> None:
        tail = self._tail
        self.free = min(tail.room, _BEHIND_BYTES - tail.bytes) - _ONE_MORE_BYTES
        if self._container_bytes is not None:  # so that `admit` is asked before it is more than one holds
            self.free = min(self.free, self.pending_bytes + self._container_bytes // 4)

    def _note_border(self) -> None:
        if self._container_bytes is not None:
            self._borders.append(self.upcoming)

    def _run(self) -> None:
        try:
            self._care()
        except Exception as error:  # of a thread that nobody watches: the next caller is told
            self.broken(error)

    def _care(self) -> None:
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
                    self._write_and_sync()
                if woken or waited >= _POUR_AFTER_S:
                    waited = 0.0
                    self.pour()
                    self.idle()
                elif self._copies and (self._pending or self._unpoured):
                    self.pour()
            except Retryable:  # a full disk, or ring: tried again; until then the tail takes what it can hold
                with suppress(Retryable):  # nothing could be swept that does not have to be said again
                    self.idle()
