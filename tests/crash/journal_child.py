"""A real process that works with a journal in several threads, to be killed.

    work <path> <life> <durability>

It says what it is about to do, in capitals, and again in small letters when that was acknowledged:

    P <resource> <number>         p <resource> <number> <id>            a job is put; its value is the number
                                  t <id> <resource> <number> <until>    it is taken
    D/F <id> <until>              d/f <id> <until>                      it is done, or has failed
    V <key> <number>              v <key> <number>                      a value is set
    A                             a                                     a counter grows by one

Each resource and key belongs to one thread, so that the order of what is said of it is the true one.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from random import Random

from headrace.journal import Job, Journal, JournalSettings, LeaseLost, ledger, open_journal, sweep
from headrace.log import tail

from .processes import Nursery, say

PUTTERS = 3
TAKERS = 3
RESOURCES = 8
LIFE = 1_000_000


class JournalNursery(Nursery):
    """Starts processes of this file."""

    module = "journal_child"


def put(journal: Journal, who: int, life: int) -> None:
    chance = Random(life * 100 + who)
    number = life * LIFE
    while True:
        number += 1
        resource = f"r://{who}/{chance.randrange(RESOURCES)}"
        say("P", resource, number)
        id_ = journal.put(resource, value=number, priority=chance.randrange(3))
        say("p", resource, number, id_)


def take(journal: Journal, who: int, life: int) -> None:
    chance = Random(life * 100 + 50 + who)
    while True:
        job = journal.next(lease="1h", wait=0.05)
        if not isinstance(job, Job):
            continue
        say("t", job.id, job.resource, job.value, job.lease_until_us)
        if chance.random() < 0.7:
            say("D", job.id, job.lease_until_us)
            job.done()
            say("d", job.id, job.lease_until_us)
        elif chance.random() < 0.8:
            say("F", job.id, job.lease_until_us)
            job.fail(0)
            say("f", job.id, job.lease_until_us)


def keep(journal: Journal, who: int, life: int) -> None:
    chance = Random(life * 100 + 90 + who)
    number = life * LIFE
    while True:
        number += 1
        key = f"k{chance.randrange(5)}"
        say("V", key, number)
        journal.set(key, number)
        say("v", key, number)
        say("A")
        journal.add("count", 1)
        say("a")


def tidy_up(journal: Journal, life: int) -> None:
    """Some of what an earlier life had taken is given back or done by id."""
    chance = Random(life)
    for job in list(journal.jobs()):
        if job.state != "leased" or chance.random() < 0.5:
            continue
        word, act = chance.choice([("D", journal.done), ("F", lambda id_: journal.fail(id_, 0))])
        say(word, job.id, job.until_us)
        try:
            act(job.id)
        except LeaseLost:
            say("error", "lease lost", job.id)
        say(word.lower(), job.id, job.until_us)


def work(path: str, life: str, durability: str) -> None:
    """Small files that turn often and a sweep that always has something to do."""
    tail.TAIL_BYTES = ledger.TAIL_BYTES = 1 << 14
    ledger._POUR_AFTER_S = 0.005
    sweep._SLACK_EVENTS, sweep._STEP_EVENTS = 50, 40
    journal = open_journal(path, JournalSettings(durability=durability))  # type: ignore[arg-type]
    say("opened")
    tidy_up(journal, int(life))
    if journal.probe("count") is None:
        journal.set("count", 0)
    threads = [threading.Thread(target=guarded, args=(put, journal, who, life)) for who in range(PUTTERS)]
    threads += [threading.Thread(target=guarded, args=(take, journal, who, life)) for who in range(TAKERS)]
    threads += [threading.Thread(target=guarded, args=(keep, journal, 0, life))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def guarded(target: object, journal: Journal, who: int, life: str) -> None:
    try:
        target(journal, who, int(life))  # type: ignore[operator]
    except BaseException as error:
        say("error", type(error).__name__, error)


def serve() -> None:
    logging.getLogger("headrace.log").setLevel(logging.CRITICAL)
    for line in sys.stdin:
        _work, *words = line.split()
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the nursery
            say("pid", os.getpid())
            try:
                work(*words)
            except BaseException as error:
                say("error", type(error).__name__, error)
            os._exit(0)
        os.waitpid(pid, 0)
        say("dead", pid)


if __name__ == "__main__":
    serve()
