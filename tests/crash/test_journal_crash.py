"""kill -9 of a process that puts, takes and finishes jobs in many threads: the account must be exact."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

from headrace.journal import JobInfo, open_journal

from .journal_child import LIFE, JournalNursery
from .workload import CAMPAIGN

KILLS = 400 if CAMPAIGN else 12
LIVES = KILLS // 3 + 1


class Account:
    """What the killed processes have said, and what must therefore be true."""

    def __init__(self) -> None:
        self.put: dict[str, tuple[int, int]] = {}
        """Resource -> number and id of the last put that was acknowledged."""
        self.putting: dict[str, int] = {}
        """Resource -> number of a put that was begun after that."""
        self.numbers: dict[int, int] = {}
        """Id -> the largest number that was acknowledged with it."""
        self.taken: dict[int, tuple[int, int]] = {}
        """Id -> number and end of the lease that was acknowledged, and not ended since."""
        self.ending: dict[int, tuple[str, int]] = {}
        """Id -> D or F, and of which lease; said but perhaps not done."""
        self.failed: set[int] = set()
        """Ids that have failed, and were not taken again: such a job is dropped when a newer one waits."""
        self.done: dict[int, int] = {}
        """Id -> the number that was worked on."""
        self.values: dict[str, int] = {}
        self.setting: dict[str, int] = {}
        self.counted = 0
        self.counting = 0

    def hear(self, line: list[str]) -> None:
        match line:
            case ["P", resource, number]:
                self.putting[resource] = int(number)
            case ["p", resource, number, id_]:
                self.put[resource] = (int(number), int(id_))
                self.numbers[int(id_)] = int(number)
                del self.putting[resource]
                # Threads are not told in the order in which it happened: it may be done by now.
                assert int(number) <= self.done.get(int(id_), int(number)), f"an update of {id_} was lost"
            case ["t", id_, _resource, number, until]:
                self._hear_taken(int(id_), int(number), int(until))
            case ["D" | "F" as what, id_, until]:
                self.ending[int(id_)] = (what, int(until))
            case ["d" | "f" as what, id_, until]:
                self._hear_ended(int(id_), what, int(until))
            case ["V", key, number]:
                self.setting[key] = int(number)
            case ["v", key, number]:
                self.values[key] = int(number)
                del self.setting[key]
            case ["A"]:
                self.counting += 1
            case ["a"]:
                self.counted += 1
            case _:
                assert line == ["opened"], line

    def _hear_taken(self, id_: int, number: int, until: int) -> None:
        assert id_ not in self.done, f"job {id_} was done, and is given out again"
        earlier = self.taken.get(id_)
        if earlier is not None:  # it has failed, and its taker was not told yet
            assert self.ending.get(id_) == ("F", earlier[1]), f"job {id_} is given out twice while leased"
        self.ending.pop(id_, None)
        self.failed.discard(id_)
        self.taken[id_] = (number, until)

    def _hear_ended(self, id_: int, what: str, until: int) -> None:
        if self.ending.get(id_) == (what.upper(), until):
            del self.ending[id_]
            number, _until = self.taken.pop(id_)
            if what == "f":
                self.failed.add(id_)
            else:
                assert number >= self.numbers.get(id_, 0), f"an update of job {id_} was lost"
                self.done[id_] = number
        else:
            assert what == "f", f"somebody else had job {id_} when it was done"

    def check(self, path: Path) -> None:
        """Open what is left, and compare."""
        with open_journal(path) as journal:
            jobs = list(journal.jobs())
            values = {value.key: value.value for value in journal.range()}
        self._check_jobs(jobs)
        for key, number in self.values.items():
            assert values[key] in (number, self.setting.get(key)), f"{key} was {number}"
        count = values.get("count", 0)
        assert isinstance(count, int)
        assert self.counted <= count <= self.counting
        self._forget_what_was_under_way(jobs, values, count)

    def _check_jobs(self, jobs: list[JobInfo]) -> None:
        by_id = {job.id: job for job in jobs}
        states: defaultdict[str, list[str]] = defaultdict(list)
        for job in jobs:
            states[job.resource].append(job.state)
            assert job.id not in self.done, f"job {job.id} was done and is back"
        for resource, found in states.items():
            assert len(set(found)) == len(found), f"{resource}: {found}"
        for resource, (number, id_) in self.put.items():
            job = by_id.get(id_)
            if job is not None:
                assert job.value in (number, self.putting.get(resource)), f"an update of {resource} was lost"
            elif id_ not in self.done:
                what, _until = self.ending.get(id_, ("F" if id_ in self.failed else "", 0))
                assert what, f"job {id_} of {resource} was acknowledged and is gone"
                newer = self.putting.get(resource)
                assert what == "D" or newer, f"job {id_} failed, nothing newer waits, and it is gone"
                seen = {job.value for job in by_id.values() if job.resource == resource}
                seen |= {number for number, _until in self.taken.values()} | set(self.done.values())
                assert what == "D" or newer in seen, f"job {id_} was dropped for one that is not there"
        for id_, (_number, until) in self.taken.items():
            if id_ in self.ending:
                continue
            job = by_id.get(id_)
            assert job is not None, f"the leased job {id_} is gone"
            assert (job.state, job.until_us) == ("leased", until), f"the lease of {id_} does not hold"

    def _forget_what_was_under_way(self, jobs: list[JobInfo], values: dict[str, object], count: int) -> None:
        """Whatever became of it, the next life begins with what is there."""
        by_id = {job.id: job for job in jobs}
        for job in jobs:
            if job.value == self.putting.get(job.resource):
                self.put[job.resource] = (job.value, job.id)
                self.numbers[job.id] = job.value
        for id_, (what, _until) in self.ending.items():
            if id_ not in by_id:
                number, _until = self.taken.pop(id_)
                self.done[id_] = number
            elif by_id[id_].state != "leased":
                assert what == "F"
                self.taken.pop(id_)
        self.put = {name: (number, id_) for name, (number, id_) in self.put.items() if id_ in by_id}
        for job in jobs:
            # Taken, and nobody was told; perhaps because it had failed, and nobody was told that either.
            if job.state == "leased" and (job.id not in self.taken or job.id in self.ending):
                assert isinstance(job.value, int)
                assert job.until_us is not None
                self.taken[job.id] = (job.value, job.until_us)
        for key, number in self.setting.items():
            if values.get(key) == number:
                self.values[key] = number
        self.counted = self.counting = count
        self.putting, self.ending, self.setting = {}, {}, {}


@pytest.mark.parametrize("durability", ["fsync", "interval", "os"])
def test_after_each_kill_every_acknowledged_job_is_there_or_done_and_none_is_there_twice(
    place: Path, durability: str
) -> None:
    chance = Random(durability)
    account = Account()
    said = 0
    with JournalNursery() as nursery:
        for life in range(1, LIVES + 1):
            pid = nursery.start("work", place / "journal", life, durability)
            lines: list[list[str]] = []
            wanted, finish = chance.choice([0, 1, 5, 50, 300, 1000]), life == LIVES and not account.done
            while len(lines) < wanted or (finish and not (lines and lines[-1][0] == "d")):
                lines.append(nursery.line())
                assert lines[-1][0] not in ("error", "dead"), lines[-1]
            os.kill(pid, signal.SIGKILL)
            lines += nursery.lines_until_dead()
            for line in lines:
                account.hear(line)
            account.check(place / "journal")
            said += len(lines)
    assert said > 10 * KILLS
    assert account.done
    assert max(account.numbers.values()) > LIFE
