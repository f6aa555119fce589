"""Listeners: a callback for each entry, in its own thread.

    listener = stream.listener(print, start=hr.START)
    ...
    listener.stop()                        # or the callback returns hr.STOP

A listener replays what is there (`behind`), then gets new entries as they come (`caught_up`), and may fall
behind again. It disturbs nobody: one that is slow, hangs or raises stands alone. One that raised has ended;
`error` says why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any

from headrace.kernel.errors import Closed
from headrace.log.segment_reader import Batch
from headrace.stream.entry import Entry, EntryMaker, Head
from headrace.stream.scan import Scanning

_logger = logging.getLogger("headrace.stream")


class Stop(Enum):
    STOP = "stop"


STOP = Stop.STOP
"""What a callback returns to end its listener."""


class Listener:
    def __init__(
        self,
        scan: Scanning,
        maker: EntryMaker,
        callback: Callable[[Entry], Any],
        on_head: Callable[[Head], Any] | None,
        decode_key: Callable[[int], Any],
        count: int | None,
    ) -> None:
        """Use `Stream.listener`."""
        self.state = "behind"
        """"behind", "caught_up" or "ended"."""
        self.error: BaseException | None = None
        """What ended it, if it was not asked to end."""
        self.index = scan.index
        """The next index it will be called for."""
        self._scan = scan
        self._maker = maker
        self._callback = callback
        self._on_head = on_head
        self._decode_key = decode_key
        self._left = count
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-listener", daemon=True)

    def start(self) -> None:
        """Begin. `Stream.listener` does it, once the stream knows of the listener."""
        if not self._stopping.is_set():  # the stream may have been closed meanwhile
            self._thread.start()

    def stop(self) -> None:
        """End after the call that is under way; from any thread, the callback's own as well."""
        self._stopping.set()
        self._scan.stop()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False when the timeout came first."""
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and not self._scan.done and self._left != 0:
                self._step()
        except BaseException as error:
            self.error = error
            _logger.exception("a listener ended because its callback raised")
        finally:
            self.state = "ended"
            self._scan.close()

    def _step(self) -> None:
        try:
            item = self._scan.next()
        except Closed:  # stopped meanwhile
            self._stopping.set()
            return
        if item is None:
            if not self._scan.done:
                self.state = "caught_up"
                self._scan.wait()
        elif isinstance(item, Batch):
            self._deliver(item)
        elif (
            self._on_head is not None
            and self._on_head(Head(self._decode_key(item.key), item.next_index)) is STOP
        ):
            self._stopping.set()

    def _deliver(self, batch: Batch) -> None:
        callback, stopping = self._callback, self._stopping
        self.state = "behind" if batch.records.num_rows > 1 else self.state
        for entry in self._maker.entries(batch):
            if stopping.is_set() or self._left == 0:
                return
            if self._left is not None:
                self._left -= 1
            self.index = entry.index + 1
            if callback(entry) is STOP:
                stopping.set()
