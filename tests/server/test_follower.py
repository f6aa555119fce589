"""A follower that has caught up gets what comes in order: from a thread past the loop, or from the loop."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.server.follower import Follower, Piece, own_line


class Transport:
    """One that writes at once, unless it is `busy`: then it keeps what it is given."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.kept = b""
        self.busy = self.closing = False

    def write(self, data: bytes) -> None:
        self.kept += data
        if not self.busy:
            self.line.sendall(self.kept)
            self.kept = b""

    def get_write_buffer_size(self) -> int:
        return len(self.kept)

    def is_closing(self) -> bool:
        return self.closing


class Ends:
    """Both ends of a connection, and a loop that runs when it is told to."""

    def __init__(self) -> None:
        self.here, self.there = socket.socketpair()
        self.there.setblocking(False)
        self.transport = Transport(self.here)
        self.follower = Follower(0, self.transport, self.here.dup())
        self.ready: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.ready.append((call, arguments))

    def run(self) -> None:
        while self.ready:
            call, arguments = self.ready.popleft()
            call(*arguments)

    def received(self) -> bytes:
        found = b""
        try:
            while data := self.there.recv(1 << 16):
                found += data
        except BlockingIOError:
            pass
        return found

    def close(self) -> None:
        self.follower.end()
        self.here.close()
        self.there.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    both = Ends()
    yield both
    both.close()


def piece(at: int, data: bytes = b"") -> Piece:
    return Piece(at, at + 1, data or b"%d," % at)


def test_a_small_piece_is_sent_at_once(ends: Ends) -> None:
    assert ends.follower.send_now(piece(0), ends.soon)
    assert ends.received() == b"0,"
    assert ends.follower.index == 1
    assert not ends.ready


@given(st.lists(st.sampled_from(["now", "now", "loop", "busy", "free"]), max_size=30))
def test_pieces_come_in_their_order_whoever_sends_them(steps: list[str]) -> None:
    """As the broadcast does it: the loop gets what cannot be sent at once."""
    ends, at = Ends(), 0
    for step in steps:
        if step in ("busy", "free"):
            ends.transport.busy = step == "busy"
            ends.transport.write(b"")
            continue
        if step == "loop" or not ends.follower.send_now(piece(at), ends.soon):
            ends.run()
            ends.follower.hand(piece(at))
        at += 1
    ends.transport.busy = False
    ends.transport.write(b"")
    assert ends.received() == b"".join(b"%d," % n for n in range(at))
    assert ends.follower.index == at
    ends.close()


def test_what_the_socket_does_not_take_goes_on_through_the_loop_before_anything_else(ends: Ends) -> None:
    ends.here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    at, sent = 0, b""
    while not ends.ready:
        data = bytes([65 + at % 26]) * 30_000
        if not ends.follower.send_now(piece(at, data), ends.soon):
            pytest.skip("this kernel takes all of a piece or nothing")
        sent, at = sent + data, at + 1
    assert not ends.follower.send_now(piece(at), ends.soon)  # the rest comes first
    ends.transport.busy = True
    ends.run()
    ends.follower.hand(piece(at))
    got = ends.received()
    ends.there.setblocking(True)
    ends.here.setblocking(False)
    while ends.transport.kept:
        try:
            ends.transport.kept = ends.transport.kept[ends.here.send(ends.transport.kept) :]
        except BlockingIOError:
            got += ends.there.recv(1 << 16)
    ends.there.setblocking(False)
    assert got + ends.received() == sent + b"%d," % at


def test_nothing_is_sent_past_a_loop_that_has_something_to_write(ends: Ends) -> None:
    ends.transport.busy = True
    ends.transport.write(b"before,")
    assert not ends.follower.send_now(piece(0), ends.soon)
    assert ends.follower.index == 0


@pytest.mark.parametrize("why", ["gone", "closing", "elsewhere", "large", "hung up", "without a line"])
def test_what_cannot_be_sent_at_once_is_left_to_the_loop(ends: Ends, why: str) -> None:
    follower, wanted = ends.follower, piece(0)
    if why == "gone":
        follower.end()
    elif why == "closing":
        ends.transport.closing = True
    elif why == "elsewhere":
        wanted = piece(1)
    elif why == "large":
        wanted = piece(0, bytes(1 << 20))
    elif why == "hung up":
        ends.there.close()
    else:
        follower = Follower(0, ends.transport)
    assert not follower.send_now(wanted, ends.soon)
    assert follower.index == 0


def test_a_follower_that_ends_closes_its_own_line_and_no_other(ends: Ends) -> None:
    line = ends.here.dup()
    follower = Follower(0, ends.transport, line)
    follower.end()
    follower.end()
    assert line.fileno() == -1
    ends.here.sendall(b"still here")
    assert ends.received() == b"still here"


class Told(asyncio.Transport):
    """A transport that says this of itself."""

    def __init__(self, **said: Any) -> None:
        super().__init__(said)


def test_a_line_of_its_own_is_for_plain_connections(ends: Ends) -> None:
    line = own_line(Told(socket=ends.here))
    assert line is not None
    with line:
        assert line.fileno() != ends.here.fileno()
        line.send(b"hello")
    assert ends.received() == b"hello"
    assert own_line(Told(socket=ends.here, ssl_object=object())) is None
    assert own_line(Told()) is None
    gone = ends.here.dup()
    gone.close()
    assert own_line(Told(socket=gone)) is None
