"""What close reading found in the FJ clients, the spool and the forwarder, each as its smallest scenario."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headrace.client import set_aside as aside_module
from headrace.client.calls import Pause, Words
from headrace.client.fj import aconnect
from headrace.client.set_aside import set_aside
from headrace.client.spool import HOUR_US, Spool, hour_file
from headrace.client.spool_file import SpoolFile
from headrace.client.spool_record import encode_record
from headrace.client.words import ClientWords
from headrace.journal.errors import BadRequest
from headrace.journal.job import Nothing
from headrace.kernel.clock import ManualClock
from headrace.wire.fj import Function, Request, encode_request

from .stand_in import StandIn
from .test_forward import HOUR, aside, drain, keys


def test_of_two_writes_the_second_has_the_larger_stamp_whatever_the_clock_says() -> None:
    """The forwarder sends the older hour first: of equal stamps the first write would win."""
    clock = ManualClock(HOUR * HOUR_US)
    words = Words(clock)
    first = words.now_us()
    clock.advance(-3600)
    assert words.now_us() == first + 1


def test_a_second_write_wins_though_the_clock_was_set_back_by_an_hour(place: Path, server: StandIn) -> None:
    clock = ManualClock(HOUR * HOUR_US)
    with Spool(place, clock=clock) as spool:
        spool.set("k", b"first")
        clock.advance(-3600)
        spool.set("k", b"second")
    drain(place, server, clock)
    assert server.shelf.values[b"k"].value == b"second"


def test_a_refused_record_that_does_not_fit_the_disk_is_not_half_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_aside(place, HOUR, 0, "a reason", b"one")
    whole = (place / "refused" / f"{HOUR}.jsonl").read_bytes()
    write = os.write
    monkeypatch.setattr(aside_module.os, "write", lambda fd, data: write(fd, data[:10]))
    with pytest.raises(OSError, match="only a part"):
        set_aside(place, HOUR, 100, "a reason", b"another")
    assert (place / "refused" / f"{HOUR}.jsonl").read_bytes() == whole


@pytest.mark.parametrize("foreign", ["directory", "pipe", "number"])
def test_what_only_looks_like_a_spool_file_stops_nobody(place: Path, server: StandIn, foreign: str) -> None:
    match foreign:
        case "directory":
            (place / "1.spool").mkdir()
        case "pipe":
            os.mkfifo(place / "1.spool")
        case _:
            (place / f"{'9' * 23}.spool").write_bytes(b"something else")
    clock = ManualClock(HOUR * HOUR_US)
    with Spool(place, clock=clock) as spool:
        spool.set("k", 1)
    assert [path.name for path in SpoolFile.all_in(place)] == [f"{HOUR}.spool"]
    assert drain(place, server, clock).sent == 1


def test_a_spool_takes_no_quit(place: Path) -> None:
    with Spool(place) as spool, pytest.raises(BadRequest, match="QUIT"):
        spool.send(Request(Function.QUIT, 0))


def test_a_quit_that_is_in_a_spool_is_set_aside(place: Path, server: StandIn) -> None:
    """From a program of others: a server closes the line, and nothing behind it would ever be sent."""
    clock = ManualClock(HOUR * HOUR_US)
    quit_ = encode_record(encode_request(Request(Function.QUIT, 0), 0), HOUR)
    hour_file(place, HOUR).write_bytes(quit_)
    with Spool(place, clock=clock) as spool:
        spool.set("k", 1)
    report = drain(place, server, clock)
    assert (report.refused, report.sent) == (1, 1)
    assert "QUIT" in aside(place)[0]["reason"]
    assert keys(server) == ["k"]


def test_a_push_wakes_all_who_wait_for_its_domain(server: StandIn) -> None:
    async def work() -> set[str]:
        async with await aconnect(port=server.port) as client, await aconnect(port=server.port) as other:
            waiting = [asyncio.create_task(client.next(wait="60s")) for _ in range(2)]
            while sum(request.function == Function.NEXT for request in server.shelf.seen) < 2:
                await asyncio.sleep(0.001)
            await other.put_batch(["a", "b"])
            return {getattr(await job, "resource", "nothing") for job in waiting}

    assert asyncio.run(work()) == {"a", "b"}


def test_a_clock_that_is_ahead_does_not_make_who_waits_ask_all_the_time() -> None:
    clock = ManualClock(1_000_000)
    talk = ClientWords(clock).wait_for_job("d", "60s", lease=None, delete=False)
    next(talk)
    pause = talk.send(Nothing(next_at_us=5))  # long ago, by this clock
    assert isinstance(pause, Pause)
    assert pause.until_us > clock.now_us()
