"""The forwarder: what is in the spool reaches the server, once, in order; and nothing stops it for long."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.client.errors import CannotConnect, ForwarderTaken
from headrace.client.forward import Forwarder, Report
from headrace.client.spool import HOUR_US, Spool, hour_file
from headrace.client.spool_file import READ_BYTES, SpoolFile
from headrace.client.spool_record import encode_record
from headrace.journal.errors import Locked
from headrace.kernel.backoff import Backoff
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import HeadraceError
from headrace.wire.errors import ProtocolError
from headrace.wire.fj import Function, Limits, Request
from waiting import until

from .stand_in import StandIn

HOUR = 472_222
NO_PAUSE = Backoff(first_s=0.001, longest_s=0.01)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(HOUR * HOUR_US)


@pytest.fixture
def spool(place: Path, clock: ManualClock) -> Iterator[Spool]:
    with Spool(place, clock=clock) as spool:
        yield spool


def forwarder(place: Path, server: StandIn, clock: ManualClock, **more: Any) -> Forwarder:
    return Forwarder(place, "127.0.0.1", server.port, clock=clock, pauses=NO_PAUSE, **more)


def drain(place: Path, server: StandIn, clock: ManualClock, **more: Any) -> Report:
    return forwarder(place, server, clock, **more).run(once=True)


def keys(server: StandIn) -> list[str]:
    seen = server.shelf.seen
    return [request.key.decode() for request in seen if request.function != Function.QUIT]


def aside(place: Path) -> list[dict[str, Any]]:
    lines = [path.read_text().splitlines() for path in sorted((place / "refused").glob("*.jsonl"))]
    return [json.loads(line) for found in lines for line in found]


@contextmanager
def running(forwarder: Forwarder) -> Iterator[Forwarder]:
    thread = threading.Thread(target=forwarder.run)
    thread.start()
    try:
        yield forwarder
    finally:
        forwarder.stop()
        thread.join(30)
        assert not thread.is_alive()


def test_what_was_spooled_is_sent_in_order_and_only_once(
    place: Path, spool: Spool, server: StandIn, clock: ManualClock
) -> None:
    for number in range(2500):
        spool.set(f"{number}", number)
    assert drain(place, server, clock) == Report(sent=2500)
    spool.put("https://example.com/a")
    assert drain(place, server, clock) == Report(sent=1)
    assert keys(server) == [*map(str, range(2500)), ":128:0"]
    assert b"https://example.com/a" in server.shelf.pending


def test_erased_records_are_not_sent_again_even_without_the_watermark(
    place: Path, spool: Spool, server: StandIn, clock: ManualClock
) -> None:
    for number in range(10):
        spool.set(f"{number}", number)
    drain(place, server, clock)
    hour_file(place, HOUR).with_suffix(".mark").unlink()
    assert drain(place, server, clock) == Report()


def test_files_of_past_hours_are_deleted_when_they_are_done(
    place: Path, spool: Spool, server: StandIn, clock: ManualClock
) -> None:
    """Days without a server: everything waits, and goes in the order of the hours."""
    for hour in range(48):
        spool.set(f"{hour}", hour)
        clock.advance(3600)
    spool.set("now", 0)
    assert drain(place, server, clock) == Report(sent=49, files_deleted=48)
    assert keys(server) == [*map(str, range(48)), "now"]
    assert [path.name for path in SpoolFile.all_in(place)] == [f"{HOUR + 48}.spool"]
    assert sorted(path.suffix for path in place.iterdir()) == [".lock", ".mark", ".spool"]
    clock.advance(3600)
    assert drain(place, server, clock) == Report(files_deleted=1)
    spool.set("later", 0)
    assert drain(place, server, clock) == Report(sent=1)


def test_names_that_come_again_every_day_are_taken_too(
    place: Path, server: StandIn, clock: ManualClock
) -> None:
    for _ in range(2):
        with Spool(place, clock=ManualClock(13 * HOUR_US)) as spool:
            spool.set("k", 1)
        assert drain(place, server, clock) == Report(sent=1, files_deleted=1)


def test_a_request_that_is_refused_is_set_aside_and_the_others_go_on(
    place: Path, spool: Spool, server: StandIn, clock: ManualClock
) -> None:
    server.shelf.refuse = lambda request: "bad_request: no 3 here" if request.key == b"3" else None
    for number in range(6):
        spool.set(f"{number}", number)
    spool.delete("none")  # does not exist, and that is what was wanted
    assert drain(place, server, clock) == Report(sent=6, refused=1)
    assert keys(server) == ["0", "1", "2", "4", "5", "none"]
    (line,) = aside(place)
    assert line["reason"] == "bad_request: no 3 here"
    assert b"3" in base64.b64decode(line["bytes"])
    assert drain(place, server, clock) == Report()


def test_a_request_that_the_server_cannot_even_read_is_found_and_set_aside(
    place: Path, spool: Spool, clock: ManualClock
) -> None:
    """The server closes the connection at it; the others are sent one by one until it is found."""
    with StandIn(limits=Limits(value_bytes=100)).serving() as server:
        for number in range(10):
            spool.set(f"{number}", bytes(200 if number in (4, 7) else 1))
        report = drain(place, server, clock)
        assert (report.sent, report.refused) == (8, 2)
        assert list(dict.fromkeys(keys(server))) == [str(n) for n in range(10) if n not in (4, 7)]
        assert ["at most 100" in line["reason"] for line in aside(place)] == [True, True]


def test_bytes_that_are_no_request_are_set_aside(
    place: Path, spool: Spool, server: StandIn, clock: ManualClock
) -> None:
    spool.set("a", 1)
    with hour_file(place, HOUR).open("ab") as file:
        file.write(encode_record(b"nonsense", HOUR) + encode_record(b"", HOUR))
    spool.set("b", 1)
    assert drain(place, server, clock) == Report(sent=2, refused=2)


def test_whoever_does_not_speak_the_protocol_gets_nothing_and_nothing_is_set_aside(
    place: Path, spool: Spool, clock: ManualClock
) -> None:
    spool.set("a", 1)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connected, _ = listening.accept()
            with connected:
                connected.recv(1000)
                connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        wrong = Forwarder(place, "127.0.0.1", listening.getsockname()[1], clock=clock)
        with pytest.raises(ProtocolError, match="does not speak FJ"):
            wrong.run(once=True)
    assert not (place / "refused").exists()
    with StandIn().serving() as server:
        assert drain(place, server, clock) == Report(sent=1)


def test_torn_records_are_passed_over_told_and_kept(
    place: Path, spool: Spool, server: StandIn, clock: ManualClock
) -> None:
    path = hour_file(place, HOUR)
    torn = encode_record(b"x" * 50, HOUR)[:40]
    spool.set("a", 1)
    with path.open("ab") as file:
        file.write(torn)
    assert drain(place, server, clock) == Report(sent=1)  # it may still be written: wait
    spool.set("b", 1)
    assert drain(place, server, clock) == Report(sent=1, torn=1)
    with path.open("ab") as file:
        file.write(torn)
    assert drain(place, server, clock) == Report()
    clock.advance(3600)  # now nobody writes to it any more
    assert drain(place, server, clock) == Report(torn=1, files_deleted=1)
    assert [base64.b64decode(line["bytes"]) for line in aside(place)] == [torn, torn]


def test_a_file_that_somebody_is_writing_to_is_not_deleted(
    place: Path, spool: Spool, server: StandIn, clock: ManualClock
) -> None:
    """A writer that is late: it has opened the file of its hour, and writes when the hour is over."""
    spool.set("a", 1)
    assert spool._hold(HOUR)
    clock.advance(7200)
    assert drain(place, server, clock) == Report(sent=1)
    os.write(spool._fd, encode_record(b"?", HOUR))
    spool.close()
    assert drain(place, server, clock) == Report(refused=1, files_deleted=1)


def test_large_records_and_large_gaps(place: Path, spool: Spool, server: StandIn, clock: ManualClock) -> None:
    spool.set("a", bytes(3 * READ_BYTES))
    with hour_file(place, HOUR).open("ab") as file:
        file.write(b"hrs1" * (READ_BYTES // 2))
    spool.set("b", bytes(READ_BYTES))
    report = drain(place, server, clock)
    assert (report.sent, report.torn) == (2, 1)
    assert [len(server.shelf.values[key].value) for key in (b"a", b"b")] == [3 * READ_BYTES, READ_BYTES]


def test_one_forwarder_is_enough(place: Path, server: StandIn, clock: ManualClock) -> None:
    with running(forwarder(place, server, clock)):
        until(lambda: (place / "ping").exists())
        with pytest.raises(ForwarderTaken, match=f"process {os.getpid()}"):
            drain(place, server, clock)
    assert drain(place, server, clock) == Report()


def test_a_ping_wakes_it_at_once(place: Path, spool: Spool, server: StandIn, clock: ManualClock) -> None:
    """It would look by itself after an hour."""
    with running(forwarder(place, server, clock, look_every_s=3600)) as forwarding:
        until(lambda: (place / "ping").exists())
        for number in range(5):
            spool.set(f"{number}", number)
            until(lambda: forwarding.report.sent == number + 1)  # noqa: B023


def test_it_looks_by_itself_if_nobody_pings(place: Path, server: StandIn, clock: ManualClock) -> None:
    with running(forwarder(place, server, clock, look_every_s=0.01)) as forwarding:
        until(lambda: (place / "ping").exists())
        (place / "ping").unlink()
        with Spool(place, clock=clock) as spool:
            spool.set("k", 1)
        until(lambda: forwarding.report.sent == 1)


def test_a_server_that_comes_and_goes(place: Path, spool: Spool, clock: ManualClock) -> None:
    with StandIn().serving() as server:
        port = server.port
    for number in range(100):
        spool.set(f"{number}", number)
    with pytest.raises(CannotConnect):
        drain(place, server, clock)
    with running(forwarder(place, server, clock, window=10)) as forwarding:
        until(lambda: forwarding.report.failures > 2)
        with StandIn().serving(port) as first:
            first.shelf.drop_after = 37
            until(lambda: forwarding.report.sent == 100)
    assert set(keys(first)) == set(map(str, range(100)))
    assert keys(first)[:37] == [str(n) for n in range(37)]


def test_what_the_server_cannot_do_now_is_tried_again(
    place: Path, spool: Spool, server: StandIn, clock: ManualClock
) -> None:
    def not_now(request: Request) -> str | None:
        return "locked: somebody else has it" if request.key == b"1" else None

    server.shelf.refuse = not_now
    for number in range(3):
        spool.set(f"{number}", number)
    with pytest.raises(Locked):
        drain(place, server, clock)
    assert keys(server) == ["0", "2"]
    server.shelf.refuse = lambda request: None
    assert drain(place, server, clock) == Report(sent=1)
    assert keys(server) == ["0", "2", "1"]


def test_stopping_before_it_runs_is_stopping_too(place: Path, server: StandIn, clock: ManualClock) -> None:
    forwarding = forwarder(place, server, clock)
    forwarding.stop()
    assert forwarding.run() == Report()
    assert issubclass(ForwarderTaken, HeadraceError)
