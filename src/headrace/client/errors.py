"""What goes wrong between a client and its server, beside what the server itself answers."""

from __future__ import annotations

import ssl

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


def nobody(url: str, error: BaseException) -> CannotConnect:
    """Why no connection to a node could be made, and what to look at."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CannotConnect(
            f"the certificate of {url} is not to be trusted ({error.verify_message}): "
            "say with `ca` which one is"
        )
    if isinstance(error, ssl.SSLError):
        return CannotConnect(f"what answers at {url} does not speak TLS ({error.reason}): is it http://?")
    return CannotConnect(f"nobody answers at {url} ({error}): is it running?")
