"""kill -9 of `headrace serve` under load from several publishers: an exact account at the end.

Each publisher sends numbered batches and sends a batch again until it is acknowledged, as the page on HTTP
says. Followers come back where they were. At the end every batch is there exactly once, and whole; and each
follower has seen every entry once, in the order in which they are stored.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import headrace as hr

from .http_node import Asking, Daemon

ROUNDS = 60 if os.environ.get("HEADRACE_CAMPAIGN") else 1
PUBLISHERS = 4
ROWS = 3
GONE = (OSError, http.client.HTTPException, json.JSONDecodeError)


class Load:
    def __init__(self, port: int) -> None:
        self.ask = Asking(port)
        self.ending = threading.Event()
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PUBLISHERS)]
        """Of each publisher: the index that the first entry of each batch was said to have."""
        self.repeated = 0
        self.total: int | None = None

    def publish(self, who: int) -> None:
        sequence, ask = 0, self.ask.keeping()
        while not self.ending.is_set():
            rows = [{"who": who, "batch": sequence, "row": row} for row in range(ROWS)]
            headers = {"Headrace-Producer": f"publisher-{who}", "Headrace-Sequence": str(sequence)}
            while True:
                try:
                    answer = ask("POST", "/streams/s", rows, headers)
                except GONE:
                    assert ask.kept is not None
                    ask.kept.close()
                    ask = self.ask.keeping()
                    time.sleep(0.02)
                    continue
                assert answer.status == 200, answer
                break
            self.repeated += answer.json["repeated"]
            self.acknowledged[who][sequence] = answer.json["first"]
            sequence += 1

    def follow(self, seen: list[dict[str, Any]]) -> None:
        """Every entry, over as many connections as it takes."""
        while self.total is None or len(seen) < self.total:
            try:
                follower = self.ask.following(f"/streams/s?follow=true&from={len(seen)}")
                while (row := follower.next()) is not None:
                    seen.append(row)
                    if self.total is not None and len(seen) >= self.total:
                        follower.close()
                        return
            except GONE:
                time.sleep(0.02)


def test_every_acknowledged_entry_is_there_once_and_followers_end_the_same(place: Path) -> None:
    lot = random.Random()
    daemon = Daemon(place / "store")
    daemon.ask.done("PUT", "/streams/s", {"fields": {"who": "int64", "batch": "int64", "row": "int64"}})
    load, seen = Load(daemon.port), [list[dict[str, Any]]() for _ in range(2)]
    publishers = [threading.Thread(target=load.publish, args=(who,)) for who in range(PUBLISHERS)]
    followers = [threading.Thread(target=load.follow, args=(rows,), daemon=True) for rows in seen]
    for thread in (*publishers, *followers):
        thread.start()
    for _ in range(ROUNDS):
        time.sleep(lot.uniform(0.05, 0.4))
        daemon.kill()
        daemon.start()
    time.sleep(0.1)
    load.ending.set()
    for thread in publishers:
        thread.join(60)
        assert not thread.is_alive()
    load.total = daemon.ask.done("GET", "/streams/s/info")["next"]
    daemon.ask.done("POST", "/streams/s", [{"who": -1}])  # wakes followers that have everything
    for thread in followers:
        thread.join(60)
        assert not thread.is_alive()
    daemon.kill()
    with hr.open(place / "store") as store:
        stored = [entry.value for entry in store.stream("s").listen()][: load.total]
    check_account(load, stored)
    for rows in seen:
        assert [row.pop("_index") for row in rows] == list(range(len(rows)))
        assert rows[: load.total] == stored


def check_account(load: Load, stored: list[dict[str, Any]]) -> None:
    expected = sum(len(batches) for batches in load.acknowledged) * ROWS
    assert len(stored) == expected
    for who, batches in enumerate(load.acknowledged):
        assert batches
        for sequence, first in batches.items():
            rows = [{"who": who, "batch": sequence, "row": row} for row in range(ROWS)]
            assert stored[first : first + ROWS] == rows
