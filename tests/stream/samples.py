"""Entries that many tests use, and how they wait for what happens in other threads and processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace as hr

PATIENCE_S = 60.0
"""How long a test waits for what must come: never reached unless it does not come at all."""

T0 = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Order:
    at: datetime
    user: str
    amount: float


@dataclass(frozen=True, slots=True)
class Number:
    n: int


@dataclass(frozen=True, slots=True)
class Named:
    id: str
    n: int


def order(n: int) -> Order:
    return Order(T0 + timedelta(seconds=n), f"user-{n}", n / 2)


def values(stream: hr.Stream, *args: Any, **options: Any) -> list[Any]:
    return [entry.value for entry in stream.listen(*args, **options)]


def publish_all(stream: hr.Stream, entries: Any) -> None:
    with stream.publisher() as publisher:
        for entry in entries:
            publisher.publish(entry)


def in_thread(function: Callable[[], Any]) -> Waiting:
    return Waiting(function)


class Waiting:
    """A function in a thread: `result` waits for what it returns, or raises what it raised."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    def result(self, patience_s: float = PATIENCE_S) -> Any:
        self._thread.join(patience_s)
        assert not self._thread.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error
        return self._value


opened: Callable[[str], contextlib.AbstractContextManager[hr.Store]] = hr.open
"""How properties open their stores: tests/conformance puts a node between."""


@contextlib.contextmanager
def temporary_store() -> Iterator[hr.Store]:
    """A store of its own, for examples of a property."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = tempfile.mkdtemp(prefix="headrace-stream-", dir=memory)
    try:
        with opened(path) as store:
            yield store
    finally:
        shutil.rmtree(path, ignore_errors=True)


def child(*arguments: object) -> subprocess.Popen[str]:
    """Another process that runs a function of `child.py`."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stream.child", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )


def life(lines: int, *arguments: object) -> list[list[str]]:
    """A process that runs a function of `child.py` and is killed once it has said so many lines.

    All that it said, without a line that the kill may have cut short.
    """
    process = child(*arguments)
    assert process.stdout is not None
    said: list[str] = []
    while len(said) < lines and (line := process.stdout.readline()):
        said.append(line)
    process.kill()
    said += process.stdout.readlines()
    process.wait(PATIENCE_S)
    return [line.split() for line in said if line.endswith("\n")]


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> str:
    """Close its input, which is how children are told to end; what they still say."""
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, f"the child failed with {process.returncode}"
    return out
