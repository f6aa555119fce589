"""Producers and forwarders in processes of their own, to be killed at any moment.

They are forked from a server that has everything imported: starting Python takes longer than what they do.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from pathlib import Path

from headrace.client.forward import Forwarder
from headrace.client.spool import Spool
from headrace.kernel.backoff import Backoff

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["headrace.client.forward"])


def produce(directory: Path, name: str, first: int, said: Path) -> None:
    """Set `name first`, `name first+1`, … for ever, and note each that returned."""
    fd = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Spool(directory) as spool:
        for number in itertools.count(first):
            spool.set(f"{name} {number}", bytes(number % 400))
            os.write(fd, b"%d\n" % number)
            time.sleep(0.0005)  # else there is more to send than a test has time for


def forward(directory: Path, port: int, window: int) -> None:
    pauses = Backoff(first_s=0.01, longest_s=0.1)
    Forwarder(directory, "127.0.0.1", port, window=window, pauses=pauses).run()
