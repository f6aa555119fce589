"""kill -9 of the source node, of the follower and of both, under load: the copy ends identical.

The source is `headrace serve`, the follower `headrace stream follow`; a publisher sends numbered batches,
each until it is acknowledged. Whenever one is killed it comes back. At the end the copy has every frame of
the source, with the same checksums.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

from client.replicas import FollowingProcess, Running
from log.copies import commits, past

from .http_node import Asking, Daemon
from .test_http_kill import GONE

ROUNDS = 40 if os.environ.get("HEADRACE_CAMPAIGN") else 2


class Publishing:
    """One publisher that does not give up. Some of its batches are large."""

    def __init__(self, port: int) -> None:
        self._ask = Asking(port)
        self._ending = threading.Event()
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        lot, sequence = random.Random(1), 0
        while not self._ending.is_set():
            text = "x" * lot.choice([1, 100, 100_000])
            rows = [{"n": sequence, "text": text}] * lot.randint(1, 4)
            headers = {"Headrace-Producer": "p", "Headrace-Sequence": str(sequence)}
            try:
                answer = self._ask("POST", "/streams/s", rows, headers)
            except GONE:
                time.sleep(0.02)
                continue
            assert answer.status == 200, answer
            self.acknowledged += 1
            sequence += 1

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_the_copy_ends_identical(place: Path) -> None:
    lot = random.Random()
    source = Daemon(place / "source")
    source.ask.done("PUT", "/streams/s", {"fields": {"n": "int64", "text": "string"}})
    follower = FollowingProcess("stream", "s", place / "copy", source.port)
    publishing = Publishing(source.port)
    victims = [[source, follower], [follower], [source]]
    for number in range(ROUNDS):
        before = publishing.acknowledged
        while publishing.acknowledged < before + 5:
            time.sleep(0.01)
        time.sleep(lot.uniform(0.0, 0.5))
        for victim in victims[number % 3]:
            victim.kill()
        for victim in victims[number % 3]:
            victim.start()
    publishing.stop()
    # What a killed node had written and not synced settles when the next one publishes.
    end = source.ask.done("POST", "/streams/s", [{"n": -1}])["next"]
    follower.kill()
    last = Running(place / "copy", f"http://127.0.0.1:{source.port}", "s", once=True)
    assert last.ended() is None
    source.kill()
    logs = [place / store / "streams" / "s" for store in ("source", "copy")]
    assert last.state.next_index == end
    assert past(logs[0]) == past(logs[1])
    assert commits(logs[0]) == commits(logs[1])
