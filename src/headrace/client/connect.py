"""`hr.connect`, for programs that may never use it: what it needs is loaded at its first call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.kernel.errors import MissingExtra

if TYPE_CHECKING:
    from headrace.client.node_line import Patience
    from headrace.client.remote import RemoteStore


def connect(
    url: str, token: str | None = None, *, ca: str | Path | None = None, patience: Patience | None = None
) -> RemoteStore:
    """The store of the node at `url`, with the nouns and verbs of `hr.open`.

    `token` is what `headrace token create` printed (or the environment's HEADRACE_TOKEN). `ca` is a file with
    certificates to trust, for a node with one of its own making. CannotConnect if nobody answers there.
    """
    try:
        from headrace.client import remote
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise MissingExtra("a client of a node needs aiohttp: pip install 'headrace[client]'") from error
    return remote.connect(url, token, ca=ca, patience=patience)
