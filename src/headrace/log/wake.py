"""Waking: how a reader in any process learns that a log has moved, without asking again and again.

The writer writes the log's `mark` after each append. On Linux the kernel tells about that by inotify:
one inotify instance and one thread serve a whole process, whatever the number of logs and readers. Where
there is no inotify (or no more instances), the same thread looks at the mark every few milliseconds
instead. When a mark goes and another is in its place, because a copy has begun anew, that one is watched.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import threading
import time
from pathlib import Path

_IN_MODIFY = 0x00000002
_IN_ATTRIB = 0x00000004
"""Among others: the file has lost its name."""
_IN_Q_OVERFLOW = 0x00004000
_EVENT = struct.Struct("iIII")
_POLL_MS = 5
_RECONSIDER_MS = 1000


class Watch:
    """What a reader waits on. `seen()` before looking at the log, then `wait(seen)` if nothing was there."""

    def __init__(self, hub: _Hub, path: str) -> None:
        self._hub = hub
        self.path = path
        self._moved = threading.Condition()
        self._moves = 0

    def seen(self) -> int:
        return self._moves

    def wait(self, seen: int, timeout: float | None = None) -> bool:
        """Wait until something moved since `seen`; False when the timeout came first."""
        with self._moved:
            return self._moved.wait_for(lambda: self._moves != seen, timeout)

    def wake(self) -> None:
        with self._moved:
            self._moves += 1
            self._moved.notify_all()

    def close(self) -> None:
        self._hub.forget(self)
        self.wake()


class _Hub:
    """All watches of this process, by file. Files that inotify does not take are polled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[str, list[Watch]] = {}
        self._polled: dict[str, bytes] = {}
        self._inotify = _Inotify.create()
        self._thread: threading.Thread | None = None

    def watch(self, path: Path) -> Watch:
        watch = Watch(self, str(path.resolve()))
        with self._lock:
            watches = self._watches.setdefault(watch.path, [])
            if not watches and (self._inotify is None or not self._inotify.add(watch.path)):
                self._polled[watch.path] = b""
            watches.append(watch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-wake", daemon=True)
                self._thread.start()
        return watch

    def forget(self, watch: Watch) -> None:
        with self._lock:
            watches = self._watches.get(watch.path, [])
            if watch in watches:
                watches.remove(watch)
            if watches or self._watches.pop(watch.path, None) is None:
                return
            if self._polled.pop(watch.path, None) is None and self._inotify is not None:
                self._inotify.remove(watch.path)

    def _run(self) -> None:
        while True:
            wait_ms = _POLL_MS if self._polled else _RECONSIDER_MS
            paths = self._inotify.wait(wait_ms) if self._inotify else _sleep(wait_ms)
            with self._lock:
                if self._inotify:
                    self._inotify.renew()
                paths += self._moved()
                woken = [watch for path in paths for watch in self._watches.get(path, ())]
            for watch in woken:
                watch.wake()

    def _moved(self) -> list[str]:
        moved = []
        for path, before in self._polled.items():
            with contextlib.suppress(OSError):
                now = Path(path).read_bytes()  # 64 bytes; its change time is too coarse
                if now != before:
                    self._polled[path] = now
                    moved.append(path)
        return moved


def _sleep(wait_ms: int) -> list[str]:
    time.sleep(wait_ms / 1000)
    return []


class _Inotify:
    def __init__(self, libc: ctypes.CDLL, fd: int) -> None:
        self._libc = libc
        self._fd = fd
        self._paths: dict[int, str] = {}
        self._ids: dict[str, int] = {}
        self._replaced: set[str] = set()

    @classmethod
    def create(cls) -> _Inotify | None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            fd = libc.inotify_init1(os.O_CLOEXEC)
        except (OSError, AttributeError):
            return None
        return cls(libc, fd) if fd >= 0 else None

    def add(self, path: str) -> bool:
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_MODIFY | _IN_ATTRIB)
        if number >= 0:
            self._paths[number], self._ids[path] = path, number
        return bool(number >= 0)

    def remove(self, path: str) -> None:
        number = self._ids.pop(path, None)
        if number is not None:
            self._paths.pop(number, None)
            self._libc.inotify_rm_watch(self._fd, number)

    def wait(self, timeout_ms: int) -> list[str]:
        """The files that changed; none when the time is over."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if not poll.poll(timeout_ms):
            return []
        data, at, paths = os.read(self._fd, 65536), 0, set[str]()
        while at < len(data):
            number, what, _, name_bytes = _EVENT.unpack_from(data, at)
            at += _EVENT.size + name_bytes
            if what & _IN_Q_OVERFLOW:  # any file may be among those that the kernel has dropped events of
                paths.update(list(self._ids))
                self._replaced.update(list(self._ids))
            elif path := self._paths.get(number):
                paths.add(path)
                if what & _IN_ATTRIB:
                    self._replaced.add(path)
        return list(paths)

    def renew(self) -> None:
        """Watch the files that are now where others were."""
        for path in self._replaced & self._ids.keys():
            self.remove(path)
            self.add(path)
        self._replaced.clear()


_hub: _Hub | None = None
_hub_lock = threading.Lock()


def watch(path: Path) -> Watch:
    """A watch on one file of this process's hub, which is made when first needed."""
    global _hub
    with _hub_lock:
        if _hub is None:
            _hub = _Hub()
        return _hub.watch(path)


def _forget_hub() -> None:
    """In a forked child the hub's thread does not exist: start over."""
    global _hub, _hub_lock
    _hub, _hub_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_hub)
