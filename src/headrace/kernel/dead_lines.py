"""Dead lines: a peer that is gone without a word (power, cable, a firewall that forgot) is found out.

A cut line says so; a dead one says nothing, and looks like one where nothing has to be said. The kernels of
both machines can tell them apart without a byte of ours: an idle connection is probed (keepalive), and what
was sent must be acknowledged in time (TCP_USER_TIMEOUT). It costs nothing, works for every protocol and every
peer (curl, too), and needs no thread and no timer. What it cannot see is a proxy between the two that is
alive itself: clients therefore ask again when a response that goes on has said nothing for too long.
"""

from __future__ import annotations

import socket
from typing import Any

_PROBES = 3


def watch(connection: Any, silent_s: float) -> None:
    """Have the connection end with an error about `silent_s` after the last sign of the peer's machine.

    `connection` is a TCP socket, or what a transport has for one. If it listens, this holds for all that it
    accepts.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(silent_s / 2)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(silent_s / 2 / _PROBES)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(silent_s * 1000)))
