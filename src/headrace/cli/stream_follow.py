"""`headrace stream follow` and `unfollow`: a local copy of a node's stream, and its end as a copy."""

from __future__ import annotations

from headrace.cli.console import Console
from headrace.cli.copying import Copying, Url, keep_copy, tell_unfollowed
from headrace.cli.options import Json, with_options
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, StreamName, no_stream, opened_store


@with_options
def follow(
    url: Url, name: StreamName, copying: Copying, store: StoreDir = DEFAULT_STORE, json: Json = False
) -> None:
    """Keep a local copy of a node's stream, until interrupted or terminated.

    What is here is not sent again: it goes on with the first index that is missing. Everything can read the
    copy; only this command adds to it. If the node is away, it is tried again. A source that was cut, or
    replaced, or trimmed beyond the copy is refused.

    Example: headrace stream follow http://there:7400 orders --once
    """
    keep_copy("streams", url, name, copying, store, Console(json))


def unfollow(name: StreamName, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Make a copy a stream of its own: it takes entries, and follows no more.

    Nobody may be following into it. Other copies can follow it from now on instead of its source.
    """
    with opened_store(store) as opened:
        if name not in opened.streams():
            raise no_stream(opened, name)
        origin = opened.unfollow(name)
        end = opened.stream(name).next_index
    tell_unfollowed("stream", name, origin, end, Console(json))
