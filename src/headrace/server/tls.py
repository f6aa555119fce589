"""TLS for a node: a certificate and its key, for TLS 1.2 and later."""

from __future__ import annotations

import ssl
from pathlib import Path

from headrace.kernel.errors import BadSettings


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    """What serves with this certificate; BadSettings if it cannot."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load(context, cert, key)
    return context


def load(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Take a certificate up: connections that come from now on see it."""
    for path in (cert, key):
        try:
            path.read_bytes()
        except OSError as error:
            raise BadSettings(f"{path} cannot be read ({error.strerror}): check the files for TLS") from error
    try:
        context.load_cert_chain(cert, key, password="")  # never ask at a terminal for one
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadSettings(
            f"{cert} and {key} are no certificate and its key, in PEM and without a password ({error})"
        ) from error
