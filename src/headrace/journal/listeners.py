"""Listeners: who wants to know when a value changes, and telling them once the change is safe."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable

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

    def changed(self, key: bytes, kind: int) -> None:
        """Called under the engine's lock, when the event that says so is queued."""
        if self.any and key in self._by_key:
            self._changes.append((self._upcoming(), key, kind))

    def tell(self, settled: int) -> None:
        """Tell of the changes below that index, which are safe."""
        if not self._changes:
            return
        with self._lock:
            calls = []
            while self._changes and self._changes[0][0] <= settled:
                _ticket, key, kind = self._changes.popleft()
                calls += [(told, key, kind) for told in self._by_key.get(key, ())]
        for told, key, kind in calls:
            told(key, kind)

    def close(self) -> None:
        with self._lock:
            self._by_key.clear()
            self.any = False
