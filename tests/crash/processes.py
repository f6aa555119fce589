"""Real processes that write and read logs, to be stopped and killed.

`Nursery` starts one process that has everything imported and forks the others, so that a new writer costs
milliseconds. What they do comes back as lines of words.

    write <path> <life>     append and sync without end: "ack <index> <generation>" for all below that index
    open <path>             try to become the writer: "opened", or "refused <code>"
    read <path>             follow: "read <index> <generation>"

Each begins with "pid <pid>" and ends with "dead <pid>"; errors come as "error <code>".
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from types import TracebackType

from headrace.kernel.errors import HeadraceError
from headrace.log import Finalize, Log, Settings

from .entries import SCHEMA, Entry, batch_of, entries_of

LIFE = 1_000_000
"""Generations of one life: its number times this and more."""


class Nursery:
    """Starts and kills processes that use logs."""

    module = "processes"
    """Of this folder: what is run."""

    def __enter__(self) -> Nursery:
        tests = Path(__file__).parent.parent
        path = os.pathsep.join([str(tests), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{Path(__file__).parent.name}.{self.module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        return self

    def start(self, *words: object) -> int:
        """Start a process; its pid."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self.line()
        assert line[0] == "pid", line
        return int(line[1])

    def line(self) -> list[str]:
        """The next line that any process wrote, as words."""
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words, "the nursery itself has ended"
        return words

    def lines_until_dead(self) -> list[list[str]]:
        lines = []
        while (line := self.line())[0] != "dead":
            lines.append(line)
        return lines

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if kind is not None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def stop(pid: int) -> None:
    """Stop a process and return when it really stands still."""
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("T", "t"):
        time.sleep(0.001)


def say(*words: object) -> None:
    """One line, in one write, so that a kill leaves all of it or nothing."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write(path: str, life: str) -> None:
    chance = Random(int(life))
    generation = int(life) * LIFE
    with Log.open(path, SCHEMA, Settings(finalize=Finalize(entries=40))) as log:
        say("opened", log.next_index)
        while True:
            generation += 1
            first, size = log.next_index, chance.choice([3, 30, 3000])
            count = chance.randint(1, 4)
            made = [Entry(first + at, generation, first + at, size) for at in range(count)]
            if count > 1 and chance.random() < 0.3:
                log.append_group([batch_of(made[:1]), batch_of(made[1:])], writer="w", sequence=generation)
            else:
                log.append(batch_of(made))
            log.sync()
            say("ack", log.next_index, generation)


def open_only(path: str) -> None:
    try:
        with Log.open(path):
            say("opened")
    except HeadraceError as error:
        say("refused", error.code)


def read(path: str) -> None:
    with Log.open(path, read_only=True) as log:
        for batch in log.read(follow=True):
            for entry in entries_of(batch):
                say("read", entry.index, entry.generation)


def serve() -> None:
    logging.getLogger("headrace.log").setLevel(logging.CRITICAL)
    jobs = {"write": write, "open": open_only, "read": read}
    for line in sys.stdin:
        name, *words = line.split()
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the nursery
            say("pid", os.getpid())
            try:
                jobs[name](*words)
            except HeadraceError as error:
                say("error", error.code)
            except BaseException as error:
                say("error", type(error).__name__, error)
            os._exit(0)
        os.waitpid(pid, 0)
        say("dead", pid)


if __name__ == "__main__":
    serve()
