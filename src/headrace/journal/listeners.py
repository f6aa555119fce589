"""Listeners: who wants to know when a value changes, and telling them once the change is safe."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Callable

_logger = logging.getLogger("headrace.journal")

Told = Callable[[bytes, int], None]
"""Called with the key and its new type; 0 when it is gone."""


class Listeners:
    """`upcoming` is the index that the next event will have."""

    def __init__(self, upcoming: Callable[[], int]) -> None:
        self.any = False
        self._upcoming = upcoming
        self._lock = threading.Lock()
        self._by_key: defaultdict[bytes, list[Told]] = defaultdict(list)
        self._changes: deque[tuple[int, bytes, int]] = deque()
        self._settled = 0
        self._telling = False

    def add(self, key: bytes, told: Told) -> None:
        """`told` may be called in any thread, and must not wait."""
        with self._lock:
            self._by_key[key].append(told)
            self.any = True

    def remove(self, key: bytes, told: Told) -> None:
        with self._lock:
            known = self._by_key.get(key, [])
            if told in known:
                known.remove(told)
            if not known:
                self._by_key.pop(key, None)
            self.any = bool(self._by_key)

    def changed(self, key: bytes, kind: int, logged: bool) -> None:
        """Called under the engine's lock, when the event that says so is queued.

        What is in no event (`logged`: it is) need not wait for the disk, only for the changes before it.
        """
        if self.any and key in self._by_key:
            changes = self._changes
            ticket = self._upcoming() if logged else changes[-1][0] if changes else 0
            changes.append((ticket, key, kind))

    def tell(self, settled: int) -> None:
        """Tell of the changes below that index, which are safe, in their order: one thread at a time does.

        Another that comes meanwhile, or a listener that changes something itself, leaves it to that one. What
        a listener raises is logged: whoever changed something has done so, and the journal goes on.
        """
        if not self._changes:
            return
        with self._lock:
            self._settled = max(self._settled, settled)
            if self._telling:
                return
            self._telling = True
        try:
            while calls := self._next_calls():
                for told, key, kind in calls:
                    try:
                        told(key, kind)
                    except Exception:
                        _logger.exception("a listener to %r failed", key)
        except BaseException:
            self._telling = False
            raise

    def _next_calls(self) -> list[tuple[Told, bytes, int]]:
        """Whom to tell of the next change that anybody listens to; nobody: the telling is over."""
        with self._lock:
            while self._changes and self._changes[0][0] <= self._settled:
                _ticket, key, kind = self._changes.popleft()
                calls = [(told, key, kind) for told in self._by_key.get(key, ())]
                if calls:
                    return calls
            self._telling = False
            return []

    def close(self) -> None:
        with self._lock:
            self._by_key.clear()
            self.any = False
