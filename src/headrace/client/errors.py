"""What goes wrong between a client and its server, beside what the server itself answers."""

from __future__ import annotations

from headrace.kernel.errors import Broken, Retryable, WriterTaken


class CannotConnect(Retryable):
    """Nobody answers at that address. Nothing was sent."""

    code = "cannot_connect"


class ConnectionLost(Broken):
    """The connection ended under a request: whether it was carried out is unknown. Connect again."""

    code = "connection_lost"


class NoAnswer(Broken):
    """The server did not answer in time: whether the request was carried out is unknown. Connect again."""

    code = "no_answer"


class ForwarderTaken(WriterTaken):
    """Another process forwards this spool already."""

    code = "forwarder_taken"
