"""A line: one blocking socket and the conversation on it, with as few system calls as there can be.

One request is one send and one recv, or a few that find nothing if the answer is expected at once
(`kernel.alertness`). The time limit is the socket's own (SO_RCVTIMEO): Python's would cost a poll for each.
Many requests are sent while replies are read, so that neither side waits for the other with full buffers.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Protocol

from headrace.client.conversation import Conversation, lost
from headrace.client.errors import CannotConnect, NoAnswer
from headrace.journal.errors import BadRequest
from headrace.kernel.alertness import Alertness, lookout
from headrace.kernel.dead_lines import watch
from headrace.kernel.errors import Closed, HeadraceError
from headrace.wire.fj import Function, Limits, Reply, Request

RECEIVE_BYTES = 1 << 16
SEND_BYTES = 1 << 18
"""How much is encoded ahead of what the socket takes."""


class Asking(Protocol):
    """What a client needs of a line."""

    @property
    def pushes(self) -> dict[bytes, int]: ...

    @property
    def told(self) -> bool: ...

    @property
    def closed(self) -> bool: ...

    def ask(self, request: Request) -> Reply: ...

    def ask_many(self, requests: Sequence[Request], answers: dict[int, Reply]) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def check_open(self) -> None: ...

    def close(self) -> None: ...


class Line:
    """Not for two threads at once; whoever owns it has a lock."""

    def __init__(
        self, connected: socket.socket, where: str, timeout: float, limits: Limits | None = None
    ) -> None:
        self._socket = connected
        self._where = where
        self._timeout = timeout
        self._talk: Conversation[int] = Conversation(limits)
        self._gone: HeadraceError | None = None
        self._alertness = Alertness()

    @classmethod
    def connect(cls, host: str, port: int, timeout: float, limits: Limits | None = None) -> Line:
        return cls.over(cls.dial(host, port, timeout), f"{host}:{port}", timeout, limits)

    @staticmethod
    def dial(host: str, port: int, timeout: float) -> socket.socket:
        """A connection; connecting, and each answer on it, may take so long."""
        if not timeout > 0:
            raise BadRequest(
                f"a timeout is a time in seconds, not {timeout}: without one a client could hang"
            )
        try:
            connected = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise CannotConnect(
                f"nobody answers at {host}:{port} ({error}): is the server running?"
            ) from error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    @classmethod
    def over(cls, connected: socket.socket, where: str, timeout: float, limits: Limits | None = None) -> Line:
        """A line over a connection that speaks FJ from now on."""
        connected.settimeout(None)
        watch(connected, timeout)  # for who waits to be pushed something
        limit = struct.pack("ll", *divmod(max(1, round(timeout * 1_000_000)), 1_000_000))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        return cls(connected, where, timeout, limits)

    @property
    def pushes(self) -> dict[bytes, int]:
        return self._talk.pushes

    @property
    def told(self) -> bool:
        """Whether the server ended it with a word why."""
        return self._talk.told

    def ask(self, request: Request) -> Reply:
        """Send one request and wait for its reply."""
        if self._gone is not None:
            self.check_open()
        data = self._talk.ask(request, 0)
        try:
            self._socket.sendall(data)
            look_until = self._alertness.begin()
            heard = self._hear(self._look(look_until) if look_until else b"")
            if not heard:
                end = time.monotonic() + self._timeout
                while not heard:
                    if time.monotonic() > end:
                        raise BlockingIOError
                    heard = self._hear()
            self._alertness.end()
        except OSError as error:
            raise self._broken(error) from error
        except (
            BaseException
        ):  # interrupted: a reply is under way that the next call must not take for its own
            self._broken("interrupted")
            raise
        return heard[0][1]

    def ask_many(self, requests: Sequence[Request], answers: dict[int, Reply]) -> None:
        """Send all of them, and put the reply of the n-th into `answers[n]` as it comes.

        If the line breaks, those that were answered are in `answers`.
        """
        self.check_open()
        out, at, left = bytearray(), 0, len(requests)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLOUT)
        try:
            while left:
                while at < len(requests) and self._may_ask(len(out)):
                    out += self._talk.ask(requests[at], at)
                    at += 1
                if out:
                    del out[: self._send_some(out)]
                if out and not self._readable(poll):
                    continue
                for number, reply in self._hear():
                    answers[number] = reply
                    left -= 1
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self._broken("interrupted")
            raise

    def _may_ask(self, encoded_bytes: int) -> bool:
        return encoded_bytes < SEND_BYTES and self._talk.in_flight < self._talk.in_flight_max

    def _send_some(self, out: bytearray) -> int:
        """As much as the socket takes now."""
        try:
            return self._socket.send(out, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _readable(self, poll: select.poll) -> bool:
        """Wait until there is something to read, or room to send."""
        events = poll.poll(self._timeout * 1000)
        if not events:
            raise BlockingIOError
        return bool(events[0][1] & ~select.POLLOUT)

    def wait(self, seconds: float) -> None:
        """Wait until anything arrives that nobody asked for, or the time is over."""
        self.check_open()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):  # interrupted here, nothing is lost
            return
        try:
            self._hear()
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self._broken("interrupted")
            raise

    def _look(self, end: float) -> bytes:
        """What comes until then, without sleeping; b"" if nothing does."""
        if not lookout.take():
            return b""
        receive = self._socket.recv
        try:
            while not lookout.wanted and time.monotonic() < end:
                try:
                    return receive(RECEIVE_BYTES, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    os.sched_yield()
        finally:
            lookout.leave()
        return b""

    def _hear(self, data: bytes = b"") -> list[tuple[int, Reply]]:
        """What was received, or is when it comes, as replies."""
        data = data or self._socket.recv(RECEIVE_BYTES)
        if not data:
            raise self._broken("the server closed it")
        heard = self._talk.hear(data)
        if self._talk.failed is not None:
            error = self._broken(self._talk.failed)
            if not heard:
                raise error
        return heard

    def _broken(self, why: object) -> HeadraceError:
        """The line is closed for good, and whoever uses it again is told why."""
        if self._gone is not None:
            return self._gone
        if isinstance(why, BlockingIOError):
            said: HeadraceError = NoAnswer(
                f"{self._where} did not answer within {self._timeout:g} s: what was asked may have been done "
                "or not; connect again"
            )
        else:
            said = why if isinstance(why, HeadraceError) else lost(self._where, why)
        self._gone = said
        self._socket.close()
        return said

    def check_open(self) -> None:
        if self._gone is not None:
            raise type(self._gone)(str(self._gone))

    def close(self) -> None:
        """Say goodbye, without waiting for an answer."""
        if self._gone is None:
            self._gone = Closed(f"the client of {self._where} is closed")
            with contextlib.suppress(OSError):  # the other side may have gone first
                self._socket.send(self._talk.ask(Request(Function.QUIT, 0), 0), socket.MSG_DONTWAIT)
            self._socket.close()

    @property
    def closed(self) -> bool:
        return self._gone is not None
