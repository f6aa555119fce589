"""A node's memory is bounded: by what readers do not take, and by what publishers send all at once.

What is measured is a process of its own, against the bounds that docs/guide/operations.md tells. They are far
below what would be needed if anything were kept for each reader, or every body were taken.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from waiting import until

from .http_node import ARROW, Asking, Daemon, ipc

MIB = 1 << 20
BODIES = 32 * MIB
FREELY = 64 * MIB
"""For threads, allocators and the like."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    started = Daemon(
        tmp_path_factory.mktemp("memory") / "store",
        "--limit",
        f"bodies_bytes={BODIES}",
        "--log-level",
        "error",
    )
    started.ask.done("PUT", "/streams/s", {"fields": {"n": "int64", "text": "string"}})
    try:
        yield started
    finally:
        started.kill()


def table(size: int) -> pa.Table:
    rows = size // 100_000
    return pa.table({"n": list(range(rows)), "text": ["x" * 100_000] * rows})


class Grown:
    """How much more memory the process has, or had at most, than when this was made."""

    def __init__(self, process: int) -> None:
        self._place = Path("/proc") / str(process)
        (self._place / "clear_refs").write_text("5")  # the peak is what there is now
        self._before = {name: self._bytes(name) for name in ("VmHWM", "RssAnon")}

    def _bytes(self, name: str) -> int:
        lines = (self._place / "status").read_text().splitlines()
        (size,) = (line.split()[1] for line in lines if line.startswith(name))
        return int(size) << 10

    @property
    def peak(self) -> int:
        return self._bytes("VmHWM") - self._before["VmHWM"]

    @property
    def held(self) -> int:
        """Now, and without files: a page that many readers have mapped would count for each."""
        return self._bytes("RssAnon") - self._before["RssAnon"]


def end_of(daemon: Daemon) -> int:
    index: int = daemon.ask.done("GET", "/streams/s/info")["next"]
    return index


@pytest.mark.parametrize("path", ["s?follow=true", "s?follow=true&format=arrow", "s/frames"])
def test_readers_that_take_nothing_cost_little_each(daemon: Daemon, path: str) -> None:
    readers, each_max = 64, 6 * MIB  # a batch, as it was made, and in the buffers below
    while end_of(daemon) < 160:
        daemon.ask.done("POST", "/streams/s", table(MIB))
    grown = Grown(daemon.process.pid)
    lines = []
    for _ in range(readers):  # 1 GiB, if the node kept for them what they do not take
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(60)
        line.connect(("127.0.0.1", daemon.port))
        line.sendall(f"GET /streams/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        lines.append(line)
    for line in lines:  # each has begun
        taken = 0
        while taken < 1 << 16:
            taken += (size := len(line.recv(1 << 12)))
            assert size
    rows = daemon.ask.rows("/streams/s")  # who reads is not held up by those who do not
    assert len(rows) == end_of(daemon)
    assert grown.held < readers * each_max + FREELY
    for line in lines:
        line.close()


@pytest.mark.parametrize("kind", ["arrow", "json"])
def test_bodies_that_come_all_at_once_are_taken_as_far_as_there_is_room(daemon: Daemon, kind: str) -> None:
    times = 8  # what is taken of a body, decoded, checked, and encoded for the log
    senders, sent = 32, table(15 * MIB)
    if kind == "arrow":
        body, media = ipc(sent), ARROW
    else:
        text = b"x" * 100_000
        body = b"".join(b'{"n":%d,"text":"%b"}\n' % (n, text) for n in range(sent.num_rows))
        media = "application/x-ndjson"
    answers: list[str] = []

    def send() -> None:
        try:
            answer = Asking(daemon.port)("POST", "/streams/s", body, {"Content-Type": media})
            answers.append("taken" if answer.status == 200 else answer.error)
        except (OSError, http.client.HTTPException):
            answers.append("cut")  # it was still sending when it was refused

    before, grown = end_of(daemon), Grown(daemon.process.pid)
    threads = [threading.Thread(target=send) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert set(answers) <= {"taken", "busy", "cut"}
    assert len(answers) == senders
    assert grown.peak < times * BODIES + FREELY
    # And it goes on, as soon as what was refused is let go.
    until(lambda: daemon.ask("POST", "/streams/s", table(MIB)).status == 200)
    assert end_of(daemon) - before == answers.count("taken") * sent.num_rows + table(MIB).num_rows
