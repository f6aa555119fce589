"""The loop of blocking clients: one thread of the process runs what they ask for, and they wait for it."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from headrace.kernel.errors import Closed

T = TypeVar("T")
_END_S = 5.0
_lock = threading.Lock()
_current: LoopThread | None = None


class LoopThread:
    def __init__(self) -> None:
        self.loop = _new_loop()
        self.process = os.getpid()
        self._ended = False
        self._thread = threading.Thread(target=self.loop.run_forever, name="headrace-client", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    @classmethod
    def shared(cls) -> LoopThread:
        """The one of this process; a process that was forked has its own."""
        global _current
        with _lock:
            if _current is None or _current.process != os.getpid():
                _current = cls()
            return _current

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._ended or self.process != os.getpid():
            work.close()
            raise Closed("this was opened by another process, or the program is ending: connect again")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Callable[[], None]) -> None:
        """Do something short there, without waiting for it."""
        self.loop.call_soon_threadsafe(work)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, and wait for it here. Who is interrupted while waiting takes it back."""
        doing = self.start(work)
        try:
            return doing.result()
        except BaseException:
            doing.cancel()
            raise

    def let_go(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something ended, and wait for it where that can be: the collector calls from anywhere."""
        if self._ended or self.process != os.getpid():
            work.close()
        elif threading.current_thread() is self._thread:
            self.start(work)
        else:
            self.run(work)

    def _end(self) -> None:
        """The interpreter ends: nothing may wait for this thread, and it tells nobody what it left undone."""
        if self.process != os.getpid():
            return
        self._ended = True
        self.loop.set_exception_handler(lambda loop, context: None)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_END_S)


def _new_loop() -> asyncio.AbstractEventLoop:
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()  # costs less
    return loop
