"""The spool: requests are kept in local files until the server has them.

    spool = Spool("/var/spool/pages")
    spool.put("https://example.com/a", after="10s")      # on disk when it returns; sent by a Forwarder

A file covers an hour and is named by it. Any number of processes append to it without waiting for each other,
one write for each record. A shared lock is held during the write and no longer: it keeps nobody from
writing, but the forwarder from deleting the file at that moment. Who opens a file that is being deleted
notices, and opens another.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec

from headrace.client.calls import Call
from headrace.client.ping import Pinger
from headrace.client.spool_record import encode_record
from headrace.client.words import ClientWords
from headrace.journal.errors import BadRequest
from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import Closed, DiskFailed, DiskFull, HeadraceError
from headrace.wire.fj import PERSIST, Function, Request, encode_request

P = ParamSpec("P")
HOUR_US = 3_600_000_000
SUFFIX = ".spool"
_DELETED_PAUSE_S = 0.001


def hour_file(directory: Path, hour: int) -> Path:
    return directory / f"{hour}{SUFFIX}"


def _spooled(
    build: Callable[Concatenate[ClientWords, P], Call[None]],
) -> Callable[Concatenate[Spool, P], None]:
    @functools.wraps(build)
    def verb(self: Spool, /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.send(build(self._words, *args, **kwargs).request)

    return verb


class Spool:
    """Where a program leaves what a server shall do. Threads and processes may share a directory."""

    def __init__(self, directory: str | Path, *, sync: bool = True, clock: Clock | None = None) -> None:
        self._directory = Path(directory)
        self._sync = sync
        self._clock = clock or SystemClock()
        self._words = ClientWords(self._clock)
        self._lock = threading.Lock()
        self._fd = -1
        self._hour = -1
        self._owner = 0
        self._pinger: Pinger | None = None
        self._closed = False

    put = _spooled(ClientWords.put)
    set = _spooled(ClientWords.set)
    delete = _spooled(ClientWords.delete)

    def send(self, request: Request) -> None:
        """Keep any request for the server; it is on disk when this returns. Persist is forced on."""
        if request.function == Function.QUIT:
            raise BadRequest("QUIT ends a connection, of which a spool has none")
        raw = encode_request(request._replace(flags=request.flags | PERSIST), 0)
        try:
            with self._lock:
                if self._closed:
                    raise Closed(f"the spool {self._directory} is closed")
                self._append(raw)
                written = os.dup(self._fd) if self._sync else -1
            if self._sync:
                _synced(written)  # outside the lock: threads need not wait for each other's syncs
            if (pinger := self._pinger) is not None:
                pinger.ping()
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._release()
            if self._pinger is not None:
                self._pinger.close()
                self._pinger = None

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside

    def _append(self, raw: bytes) -> None:
        """One write at the end of this hour's file, while the file cannot be deleted."""
        while not self._hold(self._clock.now_us() // HOUR_US):
            time.sleep(_DELETED_PAUSE_S)
        try:
            record = encode_record(raw, self._hour)
            if os.write(self._fd, record) != len(record):
                # The start of the record stays, and the forwarder passes over it. The rest of it could
                # not follow: somebody else may have written meanwhile.
                raise OSError(errno.ENOSPC, "only a part of the record was written")
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _hold(self, hour: int) -> bool:
        """Open this hour's file and lock it, shared. False: it is being deleted."""
        if hour != self._hour or self._fd < 0 or self._owner != os.getpid():
            self._open(hour)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if os.fstat(self._fd).st_nlink:
            return True
        self._release()
        return False

    def _open(self, hour: int) -> None:
        self._release()  # also a parent's: locks belong to what was opened, and must not be shared with it
        if self._pinger is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._pinger = Pinger(self._directory)
        path = hour_file(self._directory, hour)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._hour, self._owner = hour, os.getpid()
        if self._sync:  # whoever made the file may not have come to this yet
            _synced(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _failed(self, error: OSError) -> HeadraceError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return DiskFull(f"there is no room for the request in {self._directory}: free some and try again")
        return DiskFailed(f"the request may not be in {self._directory}: {error.strerror or error}")


def _synced(fd: int) -> None:
    """Sync, and close."""
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)
