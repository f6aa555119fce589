"""The spool: requests are kept in hourly files, by many processes at once."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.client import spool as spool_module
from headrace.client.ping import PingEar, Pinger
from headrace.client.spool import HOUR_US, Spool, hour_file
from headrace.client.spool_file import SpoolFile
from headrace.journal.errors import BadRequest
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import Closed, DiskFailed, DiskFull
from headrace.wire.fj import OVERWRITE, PERSIST, RANGE, Function, Request
from headrace.wire.fj_requests import RequestParser

NOW_US = 472_222 * HOUR_US + 5


def requests_in(path: Path) -> list[Request]:
    with SpoolFile(path) as file:
        return [RequestParser().feed(record.request)[0] for record in file.next(1 << 30).records]


def test_requests_are_kept_as_the_protocol_has_them(place: Path) -> None:
    with Spool(place / "spool", clock=ManualClock(NOW_US)) as spool:
        spool.put("https://example.com/a", priority=7, value=b"payload")
        spool.set("k", "text", persist=False, timestamp_us=9)
        spool.delete("k")
    assert requests_in(hour_file(place / "spool", 472_222)) == [
        Request(
            Function.SET,
            0,
            PERSIST | RANGE,
            NOW_US,
            None,
            0,
            b":7:0",
            b"https://example.com/a",
            1,
            b"payload",
        ),
        Request(Function.SET, 0, PERSIST | OVERWRITE, 9, key=b"k", type=2, value=b"text"),
        Request(Function.DELETE, 0, PERSIST, NOW_US + 1, key=b"k"),  # never the same time twice
    ]


def test_every_hour_has_its_file(place: Path) -> None:
    clock = ManualClock(NOW_US)
    with Spool(place, clock=clock) as spool:
        for _ in range(3):
            spool.put("a")
            clock.advance(3600)
    assert [path.name for path in SpoolFile.all_in(place)] == ["472222.spool", "472223.spool", "472224.spool"]


def _append(directory: Path, name: str, count: int) -> None:
    with Spool(directory, clock=ManualClock(NOW_US), sync=False) as spool:
        for number in range(count):
            spool.set(f"{name} {number}", bytes(number % 300))


def test_processes_and_threads_append_without_mixing_their_records(place: Path) -> None:
    """Each has its order kept."""
    context = multiprocessing.get_context("fork")
    workers: list[multiprocessing.process.BaseProcess | threading.Thread] = [
        *(context.Process(target=_append, args=(place, f"p{n}", 300)) for n in range(3)),
        *(threading.Thread(target=_append, args=(place, f"t{n}", 300)) for n in range(2)),
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    keys = [request.key.decode().split() for request in requests_in(hour_file(place, 472_222))]
    for name in ("p0", "p1", "p2", "t0", "t1"):
        assert [int(number) for who, number in keys if who == name] == list(range(300))
    assert len(keys) == 1500


def test_a_forked_child_has_a_file_and_a_lock_of_its_own(place: Path) -> None:
    with Spool(place, clock=ManualClock(NOW_US)) as spool:
        spool.put("parent")
        parents = spool._fd
        child = multiprocessing.get_context("fork").Process(target=spool.put, args=("child",))
        child.start()
        child.join()
        spool.put("parent again")
        assert (child.exitcode, spool._fd) == (0, parents)
    resources = [request.upper for request in requests_in(hour_file(place, 472_222))]
    assert resources == [b"parent", b"child", b"parent again"]


def test_a_file_that_is_deleted_is_never_written_to(place: Path) -> None:
    with Spool(place, clock=ManualClock(NOW_US)) as spool:
        spool.put("a")
        path = hour_file(place, 472_222)
        path.unlink()
        spool.put("b")
        assert [request.upper for request in requests_in(path)] == [b"b"]


def test_an_append_waits_while_its_file_is_being_deleted(place: Path) -> None:
    path = hour_file(place, 472_222)
    with Spool(place, clock=ManualClock(NOW_US)) as spool:
        spool.put("a")
        fd = os.open(path, os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        appending = threading.Thread(target=spool.put, args=("b",))
        appending.start()
        assert len(requests_in(path)) == 1
        path.unlink()
        os.close(fd)
        appending.join()
        assert [request.upper for request in requests_in(path)] == [b"b"]


def test_a_full_disk_is_told_and_the_next_record_is_whole(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(place, clock=ManualClock(NOW_US))
    spool.put("a")
    write = os.write
    monkeypatch.setattr(spool_module.os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
    with pytest.raises(DiskFull, match="free some"):
        spool.put("b")
    monkeypatch.undo()
    spool.put("c")
    spool.close()
    with SpoolFile(hour_file(place, 472_222)) as file:
        first = file.next(100)
        file.advance(first.end)
        torn = file.next(100)
        assert torn.gap is not None
        file.advance(torn.end)
        assert len(first.records) == len(file.next(100).records) == 1


def test_a_failing_disk_is_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    spool = Spool(place)
    monkeypatch.setattr(spool_module.os, "fdatasync", fail)
    with pytest.raises(DiskFailed, match="Input/output error"):
        spool.put("a")
    spool.close()
    with pytest.raises(Closed):
        spool.put("a")


@pytest.mark.parametrize("depth", [1, 12])
def test_pings_wake_and_never_block_or_fail(place: Path, depth: int) -> None:
    """However long the path is."""
    directory = place.joinpath(*["directory"] * depth)
    directory.mkdir(parents=True)
    pinger = Pinger(directory)
    pinger.ping()  # nobody listens
    ear = PingEar(directory)
    for _ in range(1000):
        pinger.ping()  # more than it can hold
    ear.wait(60)
    ear.wait(0)
    ear.close()
    pinger.ping()
    PingEar(directory).close()
    pinger.close()


def test_a_watermark_that_is_damaged_or_beyond_its_file_counts_for_nothing(place: Path) -> None:
    with Spool(place, clock=ManualClock(NOW_US)) as spool:
        spool.put("a")
        spool.put("b")
    path = hour_file(place, 472_222)
    mark = path.with_suffix(".mark")
    with SpoolFile(path) as file:
        file.advance(file.next(1).end)
    whole = mark.read_bytes()
    assert len(requests_in(path)) == 1
    for bad in (whole[:-1] + b"\0", whole[:5], b""):
        mark.write_bytes(bad)
        assert len(requests_in(path)) == 2
    mark.write_bytes(whole)
    os.truncate(path, 3)
    assert requests_in(path) == []
    with SpoolFile(path) as file:
        assert file.at == 0


@pytest.mark.parametrize("name", ["", b"", 3, None])
def test_what_no_server_takes_is_refused_before_it_is_kept(place: Path, name: Any) -> None:
    with Spool(place / "spool") as spool:
        for verb in (spool.put, lambda each: spool.set(each, 1)):
            with pytest.raises(BadRequest):
                verb(name)
    assert not list((place / "spool").glob("*.spool"))
