"""The engine of a journal: its state, its operations, and the one lock around both.

    results, ticket = engine.run([(lambda now: engine.jobs.put(now, job), size), ...])
    engine.settle(ticket)             # only then may anybody be told

`run` does operations: each happens as a whole, or is refused. `settle` waits until they are as safe as the
journal's durability says. The two are apart so that a server can run many operations in its one thread, and
answer each when it is safe, without waiting. `start` is `run` for one operation, and `do` is both for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.journal.batch_operations import BatchOperations
from headrace.journal.errors import JournalTaken
from headrace.journal.events import SCHEMA
from headrace.journal.ledger import Ledger
from headrace.journal.listeners import Listeners
from headrace.journal.replay import drain_tail, replay
from headrace.journal.rows import JobRow, ValueRow
from headrace.journal.settings import JournalSettings
from headrace.journal.state import State
from headrace.journal.stored_settings import log_settings, settings_of, value_bytes_of
from headrace.journal.sweep import Sweep
from headrace.journal.value_operations import ValueOperations
from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.durations import microseconds
from headrace.kernel.errors import Closed, Damaged, HeadraceError, IsReplica, TooLarge, WriterTaken
from headrace.log.copy import Origin
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.meta import load_meta
from headrace.log.tail import Tail

T = TypeVar("T")
LOG_DIRECTORY = "log"
BRIEF = 256
"""Bytes that an operation brings which says little: what became of one job, or one value."""


class Engine:
    def __init__(
        self, path: Path, log: Log, ledger: Ledger, sweep: Sweep, state: State, clock: Clock
    ) -> None:
        """Use `Engine.open`."""
        self.path = path
        self.settings = settings_of(log)
        self.value_bytes = value_bytes_of(log)
        """The largest value that the log takes."""
        self.lease_us = microseconds(self.settings.lease)
        self.state = state
        self.clock = clock
        self.changed = threading.Condition(ledger.lock)
        """Notified when jobs are put: whoever waits for one looks again."""
        self.waiting = 0
        self.wakes = 0
        self.woken: Callable[[], None] = lambda: None
        """Called, in any thread, when jobs may be due; for a server that waits on behalf of others."""
        self.listeners = Listeners(lambda: ledger.upcoming)
        self._log = log
        self._schedule = state.jobs.schedule
        self._ledger = ledger
        self._sweep = sweep
        self.closed = False
        self.jobs = BatchOperations(state.jobs, state.residents, self.settings, ledger, self.read)
        limits = replace(self.settings, value_bytes=self.value_bytes)
        self.values = ValueOperations(
            state.values, state.residents, limits, ledger, self.read, self.listeners.changed
        )
        ledger.idle = self._care
        ledger.start()

    @classmethod
    def open(
        cls,
        path: Path,
        settings: JournalSettings | None = None,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> Engine:
        """Open the journal in the directory `path`, or make it. `settings` replace the stored ones."""
        disk, clock = disk or Disk(), clock or SystemClock()
        extra = None
        if settings is not None or disk.kind(path / LOG_DIRECTORY / "meta.json") == "nothing":
            settings = (settings or JournalSettings()).checked()
            extra = {"journal": msgspec.to_builtins(settings)}
        disk.make_directory(path)
        try:
            log = Log.open(
                path / LOG_DIRECTORY,
                SCHEMA if extra is not None else None,
                log_settings(settings) if settings is not None else None,
                extra=extra,
                disk=disk,
                clock=clock,
            )
        except WriterTaken as error:
            raise JournalTaken(
                f"the journal {path.name!r} is in use by another process: "
                "close it there, or share it through `headrace journal serve`"
            ) from error
        except IsReplica as error:
            raise IsReplica(
                f"the journal {path.name!r} is a copy of {Origin.of(load_meta(disk, path / LOG_DIRECTORY))}: "
                "work with it there, or make it a journal of its own with `headrace journal unfollow`"
            ) from error
        try:
            if extra is not None and log.meta.extra != extra:
                log.evolve(log.schema, extra)
            drain_tail(disk, path, log)
            state = State(settings_of(log), clock.now_us())
            tail = Tail.open(disk, path, log.meta.salt)
            ledger = Ledger(log, tail, settings_of(log), state.by_kind, state.jobs.fold_series)
            sweep = Sweep(log, ledger, settings_of(log), clock, disk)
            replay(log, sweep.swept, state)
            return cls(path, log, ledger, sweep, state, clock)
        except BaseException:
            log.close()
            raise

    def run(
        self,
        operations: Sequence[tuple[Callable[[int], T], int]],
        enough: Callable[[], bool] | None = None,
    ) -> tuple[list[T | HeadraceError], int]:
        """Do operations, each on up to so many bytes of keys and values, as a whole or not at all.

        One of 0 bytes reads, and changes nothing but what time has changed: a full disk does not refuse it.
        Their results or errors, and what to settle before anybody is told: 0 if there is nothing to wait for.
        When there is `enough` of them, the rest is left undone, and there are fewer results.
        """
        ledger = self._ledger
        results: list[T | HeadraceError] = []
        brought = sum([size for _, size in operations])
        if brought and ledger.behind(brought):
            ledger.pour()
        with ledger.lock:
            self._check_open()
            now = self.clock.now_us()
            if brought:
                self._end_leases(now)
            before, in_memory = ledger.upcoming, ledger.volatile_events
            for operation, size in operations:
                begun = ledger.upcoming
                try:
                    if ledger.failure is not None or (size and ledger.pending_bytes + size > ledger.free):
                        ledger.admit(size)
                    results.append(operation(now))
                except HeadraceError as error:
                    results.append(error)
                except BaseException as error:
                    self._interrupted(error, begun)
                    raise
                if enough is not None and enough():
                    break
            if ledger.upcoming == before and (not brought or self._is_settled(in_memory)):
                return results, 0
            if not ledger.syncs:
                ledger.write()
            return results, ledger.upcoming

    def check_size(self, size: int) -> None:
        """TooLarge, if jobs or values of so many bytes could not be brought in as one whole."""
        if size > self._ledger.most:
            raise TooLarge(
                f"{size} bytes at once: {self._ledger.most} are possible here; put fewer at a time"
            )

    def admit(self, size: int) -> None:
        """For an operation that learns only when it runs how much it brings: DiskFull, or there is room."""
        self._ledger.admit(size)

    def write(self) -> None:
        """What was done is safe from a crash of this process, and perhaps not yet from one of the machine."""
        self._ledger.write_apart()

    def settle(self, ticket: int) -> None:
        """Return when that operation is safe; then those who listen are told of what changed."""
        if ticket and self._ledger.syncs:
            self._ledger.settle(ticket)
        if self.listeners.any:
            self.listeners.tell(self._ledger.settled)

    def pour(self) -> None:
        """Everything that was done is in the log, for those who copy it."""
        with self._ledger.lock:
            self._check_open()
        if self._ledger.failure is not None:
            raise self._ledger.failure
        self._ledger.pour()

    def copied(self) -> AbstractContextManager[None]:
        """While this block runs, what is done is in the log soon, and not only after a second."""
        return self._ledger.copied()

    def now(self, operation: Callable[[int], T]) -> T:
        """One operation that writes nothing, and that nobody need wait for."""
        result, _ticket = self.start(operation, 0)
        if isinstance(result, HeadraceError):
            raise result
        return result

    def start(self, operation: Callable[[int], T], size: int = BRIEF) -> tuple[T | HeadraceError, int]:
        """`run` for one operation: its result or error, and what to settle.

        For one that reads that is nothing: what time has changed is written with what comes next.
        """
        ledger = self._ledger
        if size and ledger.pending_bytes + size > ledger.free and ledger.behind(size):
            ledger.pour()
        with ledger.lock:
            if self.closed:
                self._check_open()
            now = self.clock.now_us()
            if size and now >= self._schedule.soonest:
                self._end_leases(now)
            before, in_memory = ledger.upcoming, ledger.volatile_events
            result: T | HeadraceError
            try:
                if ledger.failure is not None or (size and ledger.pending_bytes + size > ledger.free):
                    ledger.admit(size)
                result = operation(now)
            except HeadraceError as error:
                result = error
            except BaseException as error:
                self._interrupted(error, before)
                raise
            ticket = ledger.upcoming
            if not size or (ticket == before and self._is_settled(in_memory)):
                return result, 0
            if not ledger.syncs:
                ledger.write()
            return result, ticket

    def do(self, operation: Callable[[int], T], size: int = BRIEF) -> T:
        """One operation, settled: its result, or its error."""
        result, ticket = self.start(operation, size)
        if (ticket and self._ledger.syncs) or self.listeners.any:
            self.settle(ticket)
        if isinstance(result, HeadraceError):
            raise result
        return result

    def wake_waiting(self) -> None:
        """Jobs may be due now: whoever waits for one looks again."""
        self.wakes += 1
        self.woken()
        if self.waiting:
            with self.changed:
                self.changed.notify_all()

    def wait(self, seconds: float, seen: int) -> None:
        """Sleep until there may be a job, at most so long; not at all if `wakes` is not `seen` any more."""
        with self.changed:
            self._check_open()
            self.waiting += 1
            try:
                if self.wakes == seen:
                    self.changed.wait(seconds)
            finally:
                self.waiting -= 1

    def read(self, row: JobRow | ValueRow) -> bytes:
        """The value of a row, read back from the log if it is not in memory."""
        if row.value is None:
            for batch in self._log.read(row.place, row.place + 1, columns=["value"]):
                value = batch.records.column("value")[0].as_py() or b""
                self.state.residents.brought_back(row, value)
        if row.value is None:
            raise Damaged(f"{self.path}: the value at {row.place} of its log is gone")
        return row.value

    def close(self) -> None:
        with self._ledger.lock:
            if self.closed:
                return
            self.closed = True
            self.changed.notify_all()
        self.listeners.close()
        self._sweep.stop()
        try:
            self._ledger.close()
        finally:
            self._sweep.close()
            self._log.close()

    @property
    def log(self) -> Log:
        return self._log

    @property
    def usable(self) -> bool:
        """Whether it takes operations: nobody has closed it, and its disk has not failed."""
        return not self.closed and self._ledger.failure is None

    @property
    def syncs(self) -> bool:
        """Whether operations wait for the disk."""
        return self._ledger.syncs

    @property
    def swept(self) -> int:
        return self._sweep.swept

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the journal {self.path} is closed")

    def _is_settled(self, in_memory: int) -> bool:
        """Whether nobody need wait for an operation that wrote no event.

        It changed something in memory only; or it had nothing to change, perhaps because of what somebody
        else has just done (the same batch was put), and that is safe.
        """
        ledger = self._ledger
        return ledger.volatile_events != in_memory or ledger.settled >= ledger.upcoming

    def _end_leases(self, now: int) -> None:
        """Before an operation is admitted: what they say when they end takes room that it does not bring."""
        if self._ledger.failure is None:
            try:
                self.jobs.tick(now)
            except BaseException as error:
                self._ledger.broken(error)
                raise

    def _interrupted(self, error: BaseException, begun: int) -> None:
        """By Ctrl-C, or a mistake of ours: a part of an operation must not count."""
        if self._ledger.upcoming != begun:
            self._ledger.broken(error)

    def _care(self) -> None:
        """What the background does once a second: expiry, eviction, the sweep."""
        with self._ledger.lock:
            now = self.clock.now_us()
            self.values.tick(now)
            self.state.values.forget_deleted(now - microseconds(self.settings.keep_deleted))
            self.state.residents.evict(self._ledger.poured)
        self.listeners.tell(self._ledger.settled)
        with suppress(Closed):
            self._sweep.run(self.state, self.read)
