"""The batcher: values given one call at a time become batches, in the background.

Writers fill columns, plain lists, in a fixed order; the last column is filled last, so its length is the
number of whole rows, whatever thread looks. A flush takes that many rows of every column, makes one batch of
them and appends it; rows that arrive meanwhile stay for the next. This needs no lock between the one thread
that fills the columns and the one that flushes, because a list is appended to, sliced and cut atomically.

Flushing happens when asked for, when a limit is reached, and by itself some time after the first row came
in, unless its owner flushes always. When a limit is reached, the rows are written at once and synced in the
background, while the next ones come in; not more than one such portion is ever waited for. An error of the
background is kept for the next caller. Rows are forgotten only once they are in the log, so what a full disk
refuses is tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from headrace.kernel.errors import Broken, Closed, HeadraceError, Retryable
from headrace.log.forks import stays_with_parent
from headrace.log.state import Commit
from headrace.log.target import Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """Flush by itself after the first of these."""

    writes: int = 1_000_000
    """The call that makes it so many returns when all are durable."""
    bytes: int = 4 << 20
    """So much is gathered in memory; then it is written, and synced while the next records come in."""
    seconds: float = 1.0


class Batcher:
    """`to_batches` turns equally long columns into the batches to append."""

    def __init__(
        self,
        log: Target,
        columns: Sequence[list[Any]],
        to_batches: Callable[[list[list[Any]]], Iterable[pa.RecordBatch]],
        linger_s: float | None,
    ) -> None:
        """`linger_s`: so long after the first row it flushes by itself; None: never."""
        self.idle = True
        """Whether nobody has asked for a flush since the last: then who adds a row calls `wake`."""
        self.restart: Callable[[], None] = lambda: None
        """Called after each flush: the owner starts counting its limits anew."""
        self.rest: Callable[[], None] = lambda: None
        """Called when it has become idle, from any thread."""
        self.next_index = log.next_index
        """The index of the first row that is not in the log yet."""
        self._log = log
        self._columns = columns
        self._to_batches = to_batches
        self._linger_s = linger_s
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        """There are rows."""
        self._hurry = threading.Event()
        """There is something to sync at once, or the batcher is closing."""
        self._synced = threading.Event()
        """Nothing is waiting for the background's sync but what came last."""
        self._synced.set()
        self._closing = threading.Event()
        self._failure: HeadraceError | None = None
        self._thread: threading.Thread | None = None
        stays_with_parent(self)
        if linger_s is not None:
            self._thread = threading.Thread(target=self._run, name="headrace-flush", daemon=True)
            self._thread.start()

    @property
    def pending(self) -> int:
        """Rows that are not in the log yet."""
        return len(self._columns[-1])

    @property
    def upcoming(self) -> int:
        """The index that the next row will get."""
        with self._lock:
            return self.next_index + self.pending

    def wake(self) -> None:
        """There is a row: flush it after the time to linger. Raises if no row can be written any more."""
        if self._closing.is_set():
            raise Closed(f"the writer of {self._log.path} is closed")
        if isinstance(self._failure, Broken):
            raise self._failure
        self.idle = False
        if self._thread is not None:
            self._wanted.set()

    def flush(self) -> None:
        """Everything filled in so far is in the log and durable, as its durability says."""
        self.check()
        self.write_out()
        self._log.sync()

    def overflow(self) -> None:
        """A limit is reached: what is filled in goes into the log now, and is durable soon."""
        self.check()
        self._synced.wait()
        self.write_out()
        if self._thread is None:
            self._log.sync()
            return
        self._synced.clear()
        self._wanted.set()
        self._hurry.set()

    def write_out(self) -> None:
        """Everything filled in so far is in the log."""
        with self._lock:
            count = self.pending
            end = self.next_index + count
            batches = self._to_batches([column[:count] for column in self._columns]) if count else []
            try:
                for batch in batches:
                    self._log.append(batch)
                    self.next_index += batch.num_rows
                    for column in self._columns:
                        del column[: batch.num_rows]
            except HeadraceError:
                raise
            except BaseException:
                if threading.current_thread() is not self._thread:  # Ctrl-C: nobody fills columns meanwhile
                    self._forget_written(end)
                raise
            self.restart()

    def _forget_written(self, end: int) -> None:
        """Rows go up to index `end`, and the log has some of them: those are forgotten, in every column."""
        self.next_index = self._log.next_index
        for column in self._columns:
            del column[: max(0, len(column) - (end - self.next_index))]

    def take_back(self) -> bool:
        """Forget the last row, whose caller is about to be told that it failed; False if it got written."""
        with self._lock:
            pending = self.pending > 0
            if pending:
                for column in self._columns:
                    column.pop()
            self.restart()
            return pending

    def mend(self, index: int) -> bool:
        """Filling in the row `index` was interrupted: take away what is not whole; whether it is."""
        with self._lock:
            rows = self.pending
            for column in self._columns:
                del column[rows:]
            return self.next_index + rows > index

    def append(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Append ready batches behind what is pending; the index of the first row."""
        self.check()
        self.write_out()
        with self._lock:
            first = self.next_index
            for batch in batches:
                self._log.append(batch)
                self.next_index += batch.num_rows
                del batch  # before the next is made, which may have its memory then
            self.restart()
        if self.idle:
            self.wake()
        return first

    def append_once(self, batches: Iterable[pa.RecordBatch], writer: str, sequence: int) -> Commit:
        """The same as one atomic group that is safe to repeat: then it is answered, not appended again."""
        self.check()
        self.write_out()
        with self._lock:
            commit = self._log.append_group(list(batches), writer=writer, sequence=sequence)
            self.next_index = self._log.next_index
            self.restart()
        if self.idle:
            self.wake()
        return commit

    def lend(self, work: Callable[[Target], T]) -> T:
        """Let something else append to the log, behind what is pending, while nothing is flushed."""
        self.check()
        self.write_out()
        with self._lock:
            try:
                return work(self._log)
            finally:
                self.next_index = self._log.next_index

    def check(self) -> None:
        """Raise what a flush in the background could not do; the next one tries again."""
        if self._closing.is_set():
            raise Closed(f"the writer of {self._log.path} is closed")
        failure = self._failure
        if failure is not None:
            if not isinstance(failure, Broken):
                self._failure = None
            raise failure

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            hurried = self._hurry.wait(self._linger_s)
            if self._closing.is_set():
                return
            try:
                if hurried:  # rows that came since stay where they are: they have time
                    self._hurry.clear()
                else:
                    self._wanted.clear()
                    self._rest()
                    self.write_out()
                self._log.sync()
            except HeadraceError as error:
                self._failure = error
            except Exception as error:  # no memory, say: the next caller is told, and may try again
                self._failure = Retryable(f"writing to {self._log.path} failed ({error!r})")
            self._synced.set()

    def _rest(self) -> None:
        self.idle = True
        self.rest()

    def left_to_parent(self) -> None:
        """See `forks`. What is pending is flushed by the parent; here it is as if it were closed."""
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._closing.set()
        self._rest()

    def close(self) -> None:
        """Flush and stop; safe to call again."""
        if self._closing.is_set():
            return
        try:
            self.flush()
        finally:
            self._closing.set()
            self._rest()  # so that the next row comes to `wake`, which refuses it
            self._wanted.set()
            self._hurry.set()
            if self._thread is not None:
                self._thread.join()
            self._synced.set()  # whoever waits in another thread is told by the log that it is closed
