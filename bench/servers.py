"""The servers that are measured: each started on a free port, with its data in the run's directory."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import headrace as hr
from headrace.journal import JournalSettings

HOST = "127.0.0.1"
_START_S = 30.0
_SYNC_ALWAYS = (2, 10)
"""The version of NATS that can sync before it acknowledges."""
JOURNAL = "pages"


@dataclass(frozen=True, slots=True)
class Serving:
    port: int
    process: int
    """Its number."""


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
    with _headrace(directory, "journal", "serve", JOURNAL) as serving:
        yield serving.port


@contextmanager
def headrace_node(directory: Path) -> Iterator[Serving]:
    """`headrace serve` as it is installed."""
    with _headrace(directory, "serve") as serving:
        yield serving


@contextmanager
def beanstalkd(directory: Path, sync_ms: int) -> Iterator[int]:
    """With a binlog, synced at most every so many milliseconds: 0 is at every write."""
    port = _free_port()
    command = ["beanstalkd", "-l", HOST, "-p", str(port), "-b", str(directory), f"-f{sync_ms}"]
    with _running(command, directory):
        _wait_for(port)
        yield port


@contextmanager
def redis_server(directory: Path, appendfsync: str) -> Iterator[Serving]:
    """With an append-only file, and without snapshots, which are for another purpose."""
    port = _free_port()
    options = {
        "port": str(port),
        "bind": HOST,
        "dir": str(directory),
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "save": "",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with _running(["redis-server", *words], directory) as process:
        _wait_for(port)
        yield Serving(port, process.pid)


@contextmanager
def nats_server(directory: Path, *, synced: bool) -> Iterator[Serving]:
    """With JetStream on files. `synced`: every write is on the disk before it is acknowledged.

    Versions before 2.10 cannot do that by themselves: they sync every two minutes. For those the directory
    gets the attribute that makes the kernel sync every write to its files.
    """
    port = _free_port()
    directory.mkdir(parents=True)
    option = ""
    if synced and _nats_version() >= _SYNC_ALWAYS:
        option = "sync_interval: always"
    elif synced:
        subprocess.run(["chattr", "+S", str(directory)], check=True, capture_output=True)
    config = directory / "nats.conf"
    config.write_text(f'listen: "{HOST}:{port}"\njetstream {{ store_dir: "{directory}" {option} }}\n')
    with _running(["nats-server", "-c", str(config)], directory) as process:
        _wait_for(port)
        yield Serving(port, process.pid)


def _nats_version() -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)", version_of("nats-server"))
    assert found is not None
    return tuple(map(int, found.groups()))


@contextmanager
def _headrace(directory: Path, *verb: str) -> Iterator[Serving]:
    command = [str(Path(sys.executable).with_name("headrace")), *verb, "--port", "0"]
    with _running([*command, "--store", str(directory), "--json"], directory) as process:
        assert process.stdout is not None
        yield Serving(int(json.loads(process.stdout.readline())["port"]), process.pid)


@contextmanager
def _running(command: Sequence[str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    directory.mkdir(parents=True, exist_ok=True)
    with directory.with_suffix(".said").open("wb") as said:  # beside it: a store takes no strangers
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
        try:
            yield process
        finally:
            process.terminate()
            process.communicate()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listening:
        return int(listening.getsockname()[1])


def _wait_for(port: int) -> None:
    until = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection((HOST, port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
