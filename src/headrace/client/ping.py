"""The ping: after a write to a spool, a datagram wakes its forwarder. It never blocks or fails."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from pathlib import Path

PING = "ping"
_PATH_BYTES_MAX = 100
"""Addresses of Unix sockets have at most 107 bytes."""


class _Address:
    """The path of the socket, through the directory's descriptor if it is too long."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / PING)
        self._fd: int | None = None
        if len(os.fsencode(self.path)) > _PATH_BYTES_MAX:
            self._fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.path = f"/proc/self/fd/{self._fd}/{PING}"

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Pinger:
    """The side that wakes."""

    def __init__(self, directory: Path) -> None:
        self._address = _Address(directory)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def ping(self) -> None:
        with contextlib.suppress(OSError):  # nobody listens, or has been told often enough
            self._socket.sendto(b"!", self._address.path)

    def close(self) -> None:
        self._socket.close()
        self._address.close()


class PingEar:
    """The side that is woken. Only one at a time: the forwarder holds the lock of its spool."""

    def __init__(self, directory: Path) -> None:
        self._address = _Address(directory)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._address.path)  # left by one that was killed
        self._socket.bind(self._address.path)

    def wait(self, seconds: float) -> None:
        """Until somebody pings, or the time is over. Pings that came before count."""
        select.select([self._socket], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(16)

    def close(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._address.path)
        self._socket.close()
        self._address.close()
