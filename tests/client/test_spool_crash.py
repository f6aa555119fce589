"""kill -9 of producers and forwarders, and connections cut, with an exact account at the end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from headrace.client import spool as spool_module
from headrace.client.fj import connect
from headrace.client.forward import Forwarder
from headrace.client.spool import Spool
from headrace.client.spool_record import encode_record
from headrace.wire.fj import Function

from .real_server import Daemon
from .spool_child import forward, processes, produce
from .stand_in import StandIn

WINDOW = 40


class Forwarding:
    def __init__(self, place: Path, port: int) -> None:
        self.process = processes.Process(target=forward, args=(place, port, WINDOW), daemon=True)
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class Producer:
    """Started again and again with numbers it has not used; those it has noted must arrive."""

    def __init__(self, place: Path, name: str) -> None:
        self.place, self.name, self.next = place, name, 0
        self.notes = place / f"{name}.said"

    def start(self) -> None:
        args = (self.place, self.name, self.next, self.notes)
        self.process = processes.Process(target=produce, args=args, daemon=True)
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.next = max(self.said, default=0) + 1000

    @property
    def said(self) -> list[int]:
        if not self.notes.exists():
            return []  # killed before its first
        return [int(line) for line in self.notes.read_bytes().splitlines()]


@pytest.mark.parametrize("seed", [1])
def test_everything_that_was_spooled_arrives_whoever_is_killed(
    place: Path, server: StandIn, seed: int
) -> None:
    random.seed(seed)
    producers = [Producer(place, "a"), Producer(place, "b")]
    kills = 0
    for _ in range(3):
        for producer in producers:
            producer.start()
        forwarding = Forwarding(place, server.port)
        until_sent(server, len(server.shelf.seen) + 300)
        for _ in range(2):
            server.drop_all()
            time.sleep(random.random() / 20)
            forwarding.kill()
            kills += 2
            forwarding = Forwarding(place, server.port)
            until_sent(server, len(server.shelf.seen) + random.randrange(100, 300))
        for producer in producers:
            producer.kill()
        forwarding.kill()
        kills += 1
    report = Forwarder(place, "127.0.0.1", server.port).run(once=True)
    assert report.refused == 0
    account(server, producers, kills)


def test_everything_that_was_spooled_is_in_the_journal_even_if_its_server_is_killed(place: Path) -> None:
    """Producers, forwarder and server, all of them in turn; at the end the journal is opened and asked."""
    random.seed(7)
    daemon = Daemon(place / "store")
    (place / "spool").mkdir()
    producers = [Producer(place / "spool", name) for name in "ab"]
    for _ in range(3):
        for producer in producers:
            producer.start()
        forwarding = Forwarding(place / "spool", daemon.port)
        time.sleep(0.1 + random.random() / 5)
        daemon.kill()
        time.sleep(random.random() / 20)
        daemon.start()
        time.sleep(0.1 + random.random() / 5)
        for each in (forwarding, *producers):
            each.kill()
    report = Forwarder(place / "spool", "127.0.0.1", daemon.port).run(once=True)
    assert (report.refused, report.sent > 0) == (0, True)
    with connect(port=daemon.port) as client:
        found = {value.key: value.value for value in client.range()}
    daemon.kill()
    assert any(producer.said for producer in producers)
    for producer in producers:
        for number in producer.said:
            assert found[f"{producer.name} {number}"] == bytes(number % 400)


class FastClock:
    """An hour in a few milliseconds: files begin, are done and are deleted all the time."""

    def now_us(self) -> int:
        return time.monotonic_ns() * 200


def test_no_request_is_written_into_a_file_that_is_being_deleted(
    place: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is killed here, so each arrives exactly once. Writers dawdle when they have opened the file."""

    def dawdling(request: bytes, hour: int) -> bytes:
        if random.random() < 0.1:
            time.sleep(0.03)
        return encode_record(request, hour)

    monkeypatch.setattr(spool_module, "encode_record", dawdling)
    clock, count = FastClock(), 200
    forwarding = Forwarder(place, "127.0.0.1", server.port, clock=clock, look_every_s=0.001)

    def write(name: str) -> None:
        with Spool(place, clock=clock, sync=False) as spool:
            for number in range(count):
                spool.set(f"{name} {number}", number)
                time.sleep(0)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    runner = threading.Thread(target=forwarding.run)
    for thread in (runner, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    until_sent(server, 3 * count)
    forwarding.stop()
    runner.join()
    arrived = [request.key.decode() for request in server.shelf.seen if request.function == Function.SET]
    assert sorted(arrived) == sorted(f"{name} {number}" for name in "abc" for number in range(count))
    assert forwarding.report.files_deleted > 1
    assert forwarding.report.torn == 0


def until_sent(server: StandIn, count: int) -> None:
    for _ in range(6000):
        if len(server.shelf.seen) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("the forwarder sends nothing")


def account(server: StandIn, producers: list[Producer], kills: int) -> None:
    arrived = [
        request.key.decode().split() for request in server.shelf.seen if request.function == Function.SET
    ]
    for producer in producers:
        numbers = [int(number) for name, number in arrived if name == producer.name]
        first = list(dict.fromkeys(numbers))
        assert set(producer.said) <= set(first), "what the spool took has not arrived"
        assert first == sorted(first), "not in the order of writing"
        assert len(producer.said) > 50
    again = sum(count - 1 for count in Counter(map(tuple, arrived)).values())
    assert again <= kills * WINDOW, "more was sent again than was under way"
