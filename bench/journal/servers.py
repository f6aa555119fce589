"""The servers that are measured: each started on a free port, with its data in the run's directory."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import headrace as hr
from headrace.journal import JournalSettings

_START_S = 30.0
JOURNAL = "pages"


def installed(program: str) -> bool:
    return shutil.which(program) is not None


def version_of(program: str) -> str:
    said = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stdout
    return said.split(" sha=")[0].strip()


@contextmanager
def headrace_server(directory: Path, settings: JournalSettings) -> Iterator[int]:
    """`headrace journal serve` as it is installed; its port."""
    with hr.open(directory) as store:
        store.journal(JOURNAL, settings)  # the command takes the settings that are stored
    command = [Path(sys.executable).with_name("headrace"), "journal", "serve", JOURNAL, "--port", "0"]
    with _running([*map(str, command), "--store", str(directory), "--json"], directory) as process:
        assert process.stdout is not None
        yield int(json.loads(process.stdout.readline())["port"])


@contextmanager
def beanstalkd(directory: Path, sync_ms: int) -> Iterator[int]:
    """With a binlog, synced at most every so many milliseconds: 0 is at every write."""
    port = _free_port()
    command = ["beanstalkd", "-l", "127.0.0.1", "-p", str(port), "-b", str(directory), f"-f{sync_ms}"]
    with _running(command, directory):
        _wait_for(port)
        yield port


@contextmanager
def redis_server(directory: Path, appendfsync: str) -> Iterator[int]:
    """With an append-only file, and without snapshots, which are for another purpose."""
    port = _free_port()
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(directory),
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "save": "",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with _running(["redis-server", *words], directory):
        _wait_for(port)
        yield port


@contextmanager
def _running(command: Sequence[str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _wait_for(port: int) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
