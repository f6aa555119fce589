"""The forwarder: brings what is in a spool to the server, in order, and erases what the server has.

    Forwarder("/var/spool/pages", "journal.example", 4011).run()

It is woken by the ping that follows each write, and looks by itself once in a while. Requests are sent many
at a time; each is erased after the server has answered that it is on disk there, and not before. So
whenever it is killed, nothing is lost, and at most the requests that were under way are sent again. A SET
keeps the timestamp that it was written with, so sending it twice changes nothing.

A request that the server refuses is set aside with the reason (`refused/`), as are the bytes of a torn
record, and the others go on. If the server is away or cannot do it now, the pauses grow.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.client.answers import NO_KEY, failure
from headrace.client.errors import ForwarderTaken
from headrace.client.line import Line
from headrace.client.ping import PingEar, Pinger
from headrace.client.set_aside import set_aside
from headrace.client.spool import HOUR_US
from headrace.client.spool_file import SpoolFile
from headrace.client.spool_record import Gap, Record
from headrace.kernel.backoff import Backoff
from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import HeadraceError, Refused
from headrace.wire.errors import ProtocolError
from headrace.wire.fj import PERSIST, Function, Limits, Reply, Request
from headrace.wire.fj_requests import RequestParser

LOCK_FILE = "forwarder.lock"
WINDOW = 1000
"""Requests under way at a time: what may be sent twice after a crash."""
_BATCHES_A_TURN = 16
"""So that a file which is written all the time does not keep the others waiting."""
_ANY_SIZE = Limits(value_bytes=1 << 32)
_log = logging.getLogger("headrace.client")


@dataclass(slots=True)
class Report:
    """What a forwarder has done so far."""

    sent: int = 0
    refused: int = 0
    torn: int = 0
    """Stretches of bytes that are no records."""
    files_deleted: int = 0
    failures: int = 0
    """How often the server was away or could not."""


class Forwarder:
    """One for a spool. `run` does the work, in the thread that calls it; `stop` ends it from any other."""

    def __init__(
        self,
        directory: str | Path,
        host: str,
        port: int,
        *,
        window: int = WINDOW,
        timeout: float = 30.0,
        look_every_s: float = 1.0,
        pauses: Backoff | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._directory = Path(directory)
        self._address = (host, port, timeout)
        self._window = window
        self._look_every_s = look_every_s
        self._pauses = pauses or Backoff(first_s=0.1, longest_s=30.0)
        self._clock = clock or SystemClock()
        self._line: Line | None = None
        self._careful = 0
        """So many requests are sent one by one, to find the one that the server cannot even read."""
        self._stopped = threading.Event()
        self.report = Report()

    def run(self, *, once: bool = False) -> Report:
        """Forward until `stop`; with `once`, until the spool has nothing more to send.

        With `once`, a server that is away is an error; otherwise it is tried again and again.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        failures = 0
        with _held(self._directory), contextlib.closing(PingEar(self._directory)) as ear:
            try:
                while not self._stopped.is_set():
                    try:
                        more = self._turn()
                        failures = 0
                    except (HeadraceError, OSError) as error:
                        if once:
                            raise
                        failures += 1
                        self._failed(error, failures)
                        continue
                    if more:
                        continue
                    if once:
                        break
                    ear.wait(self._look_every_s)
            finally:
                self._hang_up()
        return self.report

    def stop(self) -> None:
        """End `run` soon; what is under way is finished first."""
        self._stopped.set()
        with contextlib.suppress(OSError), contextlib.closing(Pinger(self._directory)) as pinger:
            pinger.ping()

    # --- files

    def _turn(self) -> bool:
        """Look at every file. True: there is more to send already."""
        more, failed = False, None
        for path in SpoolFile.all_in(self._directory):
            if self._stopped.is_set():
                break
            with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as opened:
                try:
                    file = opened.enter_context(SpoolFile(path))
                except PermissionError as error:  # somebody else's: the others are not to wait for it
                    failed = error
                    continue
                more |= self._forward(file)
        if failed is not None:
            raise failed
        return more

    def _forward(self, file: SpoolFile) -> bool:
        for _ in range(_BATCHES_A_TURN):
            found = file.next(1 if self._careful else self._window)
            if found.end == file.at:
                return self._retire(file)
            if found.gap is not None:
                self._torn(file, found.gap)
            waiting = [record for record in found.records if record.waiting]
            if waiting and not self._send(file, waiting):
                break
            file.advance(found.end)
            if self._stopped.is_set():
                break
        return True

    def _retire(self, file: SpoolFile) -> bool:
        """A file of a past hour goes when all of it is done. True: there is more in it."""
        if file.hour >= self._clock.now_us() // HOUR_US:
            return False
        done = file.retire()
        if isinstance(done, Gap):
            self._torn(file, done)
            file.advance(done.offset + done.size)
            return True
        self.report.files_deleted += done == "deleted"
        return done == "more"

    def _torn(self, file: SpoolFile, gap: Gap) -> None:
        self.report.torn += 1
        reason = (
            f"torn: {gap.size} bytes are no whole record; whoever wrote them was stopped, or got an error"
        )
        set_aside(self._directory, file.hour, gap.offset, reason, file.bytes_of(gap))
        _log.warning("%s at byte %d: %s", file.path, gap.offset, reason)

    # --- the server

    def _send(self, file: SpoolFile, records: Sequence[Record]) -> bool:
        """Send them all. Erase what the server has, set aside what it refuses, raise for what is left.

        False: the server cannot read one of them, and they are to be sent again, one by one.
        """
        readable, requests = self._requests(file, records)
        answers: dict[int, Reply] = {}
        found_it = True
        try:
            if self._line is None:
                self._line = Line.connect(*self._address)
            self._line.ask_many(requests, answers)
        except ProtocolError as error:
            if self._line is None or not self._line.told:
                raise  # whoever is there does not speak FJ: that is no fault of the requests
            self._hang_up()
            found_it = len(readable) == 1
            if found_it:
                self._refused(file, readable[0], f"{error.code}: {error}")
                file.erase(readable)
        finally:
            again = self._settle(file, readable, requests, answers)
        if again is not None:
            raise again
        self._careful = max(0, self._careful - 1) if found_it else len(readable)
        return found_it

    def _requests(self, file: SpoolFile, records: Sequence[Record]) -> tuple[list[Record], list[Request]]:
        readable, requests = [], []
        for record in records:
            try:
                (request,) = RequestParser(_ANY_SIZE).feed(record.request)
                if request.function == Function.QUIT:  # nothing behind it would be answered
                    raise ProtocolError("QUIT is no request to a server that is away")
            except (ProtocolError, ValueError) as error:
                self._refused(file, record, f"protocol: {error}")
                file.erase([record])
                continue
            readable.append(record)
            requests.append(request._replace(flags=request.flags | PERSIST))
        return readable, requests

    def _settle(
        self,
        file: SpoolFile,
        records: Sequence[Record],
        requests: Sequence[Request],
        answers: dict[int, Reply],
    ) -> HeadraceError | None:
        """Erase what is answered. The error of a request that must be sent again, if there is one."""
        again, done = None, []
        for number, reply in answers.items():
            record, request = records[number], requests[number]
            if reply.error and not (reply.error == NO_KEY and request.function == Function.DELETE):
                error = failure(reply.error, request.key)
                if not isinstance(error, Refused):
                    again = error
                    continue
                self._refused(file, record, f"{error.code}: {error}")
            else:
                self.report.sent += 1
            done.append(record)
        file.erase(done)
        return again

    def _refused(self, file: SpoolFile, record: Record, reason: str) -> None:
        self.report.refused += 1
        set_aside(self._directory, file.hour, record.offset, reason, record.request)
        _log.warning("%s at byte %d was refused: %s", file.path, record.offset, reason)

    def _failed(self, error: Exception, failures: int) -> None:
        self.report.failures += 1
        self._hang_up()
        pause = self._pauses.pause_s(failures)
        _log.warning("forwarding pauses for %.1f s: %s", pause, error)
        self._stopped.wait(pause)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """The lock of a spool's forwarder. The kernel releases it when the process dies."""
    fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(fd, 100, 0).decode(errors="replace").strip() or "another process"
            raise ForwarderTaken(
                f"{directory} is being forwarded by {who}: one forwarder is enough"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
