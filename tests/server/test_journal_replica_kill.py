"""kill -9 of a node and of whoever follows its journal, under load; then the node is lost for good.

A client puts, takes and finishes jobs, and notes what it was told. At the end the copy is made a journal of
its own. Its frames are those of the source, and every event that was acknowledged before it was copied last
is in it: jobs that were put are there, unless they were finished, and finished ones are not.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import headrace as hr
from client.replicas import FollowingProcess, Running
from log.copies import is_beginning, past

from .http_node import Asking, Daemon
from .test_http_kill import GONE

ROUNDS = 40 if os.environ.get("HEADRACE_CAMPAIGN") else 3


class Working:
    """One client that puts jobs, and finishes every second one. What it is told it writes down."""

    def __init__(self, port: int) -> None:
        self._ask = Asking(port)
        self._ending = threading.Event()
        self.put: set[str] = set()
        self.done: set[str] = set()
        self.in_doubt: set[str] = set()
        """What was asked for and never answered: it may have happened."""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            resource = f"job-{number}"
            try:
                self._said("put", {"resource": resource})
                self.put.add(resource)
                if number % 2:
                    job = self._said("next", {"lease": 3600})["job"]
                    self.in_doubt.add(job["resource"])
                    self._said("done", {"id": job["id"]})
                    self.done.add(job["resource"])
                    self.in_doubt.discard(job["resource"])
            except GONE:
                self.in_doubt.add(resource)
                time.sleep(0.02)

    def _said(self, verb: str, body: object) -> dict[str, dict[str, str]]:
        answer = self._ask("POST", f"/journals/pages/{verb}", body)
        assert answer.status < 300, answer
        told: dict[str, dict[str, str]] = answer.json
        return told

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def log_of(store: Path) -> Path:
    return store / "journals" / "pages" / "log"


def test_what_was_acknowledged_and_copied_goes_on_in_the_copy(place: Path) -> None:
    lot = random.Random()
    source = Daemon(place / "source")
    source.ask.done("PUT", "/journals/pages")
    follower = FollowingProcess("journal", "pages", place / "copy", source.port)
    working = Working(source.port)
    victims = [[source, follower], [follower], [source]]
    for number in range(ROUNDS):
        before = len(working.put)
        while len(working.put) < before + 20:
            time.sleep(0.01)
        time.sleep(lot.uniform(0.0, 0.2))
        for victim in victims[number % 3]:
            victim.kill()
        for victim in victims[number % 3]:
            victim.start()
    follower.kill()
    put, done, in_doubt = set(working.put), set(working.done), set(working.in_doubt)
    last = Running(place / "copy", f"http://127.0.0.1:{source.port}", "pages", kind="journals", once=True)
    assert last.ended() is None
    working.stop()
    source.kill()
    assert is_beginning(past(log_of(place / "copy")), past(log_of(place / "source")))
    with hr.open(place / "copy") as store:
        store.unfollow_journal("pages")
        left = {job.resource for job in store.journal("pages").jobs()}
    # What happened after `put` and `done` were noted may be in the copy, or not.
    later = (working.put - put) | (working.done - done) | working.in_doubt | in_doubt
    assert put - done - left <= later
    assert not (left & done) - later
    assert left <= working.put | working.in_doubt
