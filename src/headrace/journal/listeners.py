"""Listeners: who wants to know when a value changes, and telling them once the change is safe."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

Told = Callable[[bytes, int], None]
"""Called with the key and its new type; 0 when it is gone."""


class Listeners:
    def __init__(self) -> None:
        self.any = False
        self._lock = threading.Lock()
        self._by_key: defaultdict[bytes, list[Told]] = defaultdict(list)
        self._changes: list[tuple[bytes, int]] = []

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
        """Called under the engine's lock."""
        if self.any and key in self._by_key:
            self._changes.append((key, kind))

    def tell(self) -> None:
        if not self._changes:
            return
        with self._lock:
            changes, self._changes = self._changes, []
            calls = [(told, change) for change in changes for told in self._by_key.get(change[0], ())]
        for told, change in calls:
            told(*change)

    def close(self) -> None:
        with self._lock:
            self._by_key.clear()
            self.any = False
