"""Opening a store and a stream for a command: the options, and errors that say what to type next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headrace.kernel.errors import NotFound
from headrace.log.queue import RAW_SCHEMA
from headrace.store import Store, open_store
from headrace.stream import Stream
from headrace.stream.record import TAG

StoreDir = Annotated[
    Path,
    typer.Option(
        "--store", envvar="HEADRACE_STORE", metavar="DIR", help="The store: a directory.", readable=False
    ),
]
"""Not asked whether it is readable: opening it tells, with the code that this error has everywhere."""
StreamName = Annotated[str, typer.Argument(metavar="NAME", help="The stream's name.", show_default=False)]
DEFAULT_STORE = Path("data")


@contextmanager
def opened_store(path: Path) -> Iterator[Store]:
    """The store at `path`, which must be there already."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        raise NotFound(
            f"there is no store at {path}: say where it is with --store or HEADRACE_STORE, "
            "or make one with `headrace stream create`"
        )
    with open_store(path) as store:
        yield store


@contextmanager
def opened_stream(path: Path, name: str) -> Iterator[Stream]:
    """The stream `name`, of which only what is stored is known: its entries are rows."""
    with opened_store(path) as store:
        yield stream_of(store, name)


def stream_of(store: Store, name: str) -> Stream:
    try:
        return store.stream(name)
    except NotFound:
        if name in store.streams():
            raise
        raise no_stream(store, name) from None


def no_stream(store: Store, name: str) -> NotFound:
    advice = "see `headrace stream ls`, or make it with `headrace stream create`"
    return NotFound(f"there is no stream {name!r} in {store.path}: {advice}")


def is_raw(stream: Stream) -> bool:
    """Whether the entries are plain bytes."""
    return bool(stream.schema.equals(RAW_SCHEMA))


def is_union(stream: Stream) -> bool:
    """Whether entries are of several classes, each with fields of its own.

    What is stored does not tell which class has which field: one that is null may be missing in JSON.
    """
    return TAG in stream.schema.names


def variants_of(stream: Stream) -> list[str]:
    """The names of the classes of a union."""
    stored = stream.log.meta.extra.get("stream", {})
    names = stored.get("required", {}) if is_union(stream) else {}
    return sorted(name for name in names if "." not in name)  # with a dot: classes inside a field


def unique_of(stream: Stream) -> tuple[str | None, int | None]:
    """The field of unique ids, and the window in which they are unique."""
    stored = stream.log.meta.extra.get("stream", {})
    return stored.get("unique_by"), stored.get("unique_window")
