"""kill -9 of a real writer, again and again, under the eyes of a reader."""

from __future__ import annotations

import os
import signal
import threading
from random import Random

from headrace.log import Log

from .entries import SCHEMA, Entry, batch_of, entries_of
from .judge import look
from .processes import LIFE, Nursery

KILLS = 50
PATIENCE_S = 120
"""Never reached unless something hangs."""


class Follower(threading.Thread):
    """Reads a log from its start as it grows, and remembers everything."""

    def __init__(self, log: Log) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.entries: list[Entry] = []
        self.error: BaseException | None = None
        self._grown = threading.Condition()

    def run(self) -> None:
        try:
            for batch in self.log.read(follow=True):
                with self._grown:
                    self.entries.extend(entries_of(batch))
                    self._grown.notify_all()
        except BaseException as error:
            with self._grown:
                self.error = error
                self._grown.notify_all()

    def wait_for(self, count: int) -> None:
        with self._grown:
            self._grown.wait_for(lambda: len(self.entries) >= count or self.error is not None, PATIENCE_S)


def test_fifty_kills_of_a_writer_lose_nothing_acknowledged_and_its_reader_sees_every_entry_once(place):
    chance = Random(50)
    path = place / "log"
    Log.open(path, SCHEMA).close()
    follower = Follower(Log.open(path, read_only=True))
    follower.start()
    acknowledged: dict[int, int] = {}
    seen_until = 0
    with Nursery() as nursery:
        for life in range(1, KILLS + 1):
            pid = nursery.start("write", path, life)
            lines = []
            for _ in range(chance.choice([0, 1, 2, 5, 10, 20])):
                lines.append(nursery.line())
                assert lines[-1][0] not in ("error", "dead"), lines
            os.kill(pid, signal.SIGKILL)
            lines += nursery.lines_until_dead()
            assert not [line for line in lines if line[0] == "error"], lines
            for line in lines:
                if line[0] == "ack":
                    for index in range(seen_until, int(line[1])):
                        acknowledged[index] = int(line[2]) // LIFE
                    seen_until = int(line[1])
                elif line[0] == "opened":  # what is there was kept by recovery, acknowledged or not
                    assert int(line[1]) >= seen_until
                    seen_until = int(line[1])
    with Log.open(path) as log:
        end = log.next_index
        assert log.verify().ok
    follower.wait_for(end)
    follower.log.close()
    follower.join(PATIENCE_S)
    assert follower.error is None, repr(follower.error)
    seen, report = look(path)
    assert report.ok
    assert not seen.damages
    assert sorted(seen.entries) == list(range(end)), "a hole or a loss"
    assert len(acknowledged) > KILLS
    wrong = {
        i: seen.entries[i] for i, life in acknowledged.items() if seen.entries[i].generation // LIFE != life
    }
    assert not wrong, "indexes that had been acknowledged hold other entries"
    assert [entry.index for entry in follower.entries] == list(range(end)), (
        "the reader saw a gap or an entry twice"
    )
    assert dict(enumerate(follower.entries)) == seen.entries


def test_a_killed_reader_does_not_disturb_the_writer(place):
    path = place / "log"
    with Nursery() as nursery, Log.open(path, SCHEMA) as log:
        for life in range(10):
            pid = nursery.start("read", path)
            generation = (life + 1) * LIFE
            for _ in range(3):
                made = [Entry(log.next_index, generation, log.next_index, 100)]
                log.append(batch_of(made))
            log.sync()
            while nursery.line() != ["read", str(log.next_index - 1), str(generation)]:
                pass
            os.kill(pid, signal.SIGKILL)
            assert not [line for line in nursery.lines_until_dead() if line[0] == "error"]
        assert log.verify().ok
        assert log.next_index == 30
