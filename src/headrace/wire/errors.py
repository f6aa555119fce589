"""What goes wrong when bytes are not what the protocol says."""

from __future__ import annotations

from headrace.kernel.errors import Refused


class ProtocolError(Refused):
    """The peer's bytes are no frame of the protocol. Where the next frame starts is unknown: close."""

    code = "protocol"
