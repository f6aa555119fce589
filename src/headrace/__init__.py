"""headrace: one durable log under every kind of messaging.

    open, Store, Stream        typed streams in a directory, without a server
    connect                    the same nouns and verbs on a node, `headrace serve`
    at_key, START, END, STOP   places in a stream, and how a listener ends
    Journal, JournalSettings   jobs without duplicates, and keys with values
    spool                      requests for a journal's server, kept in files until it has them
    writer, reader, channel    an embedded queue of bytes
    Settings                   durability, finalization, retention, compression
    HeadraceError              and its five kinds, by what the caller can do
    spark                      the same streams in Spark, exactly once; jobs over several of them

The log of Arrow record batches below everything is `headrace.log.Log`.
"""

import importlib
import types

from headrace.client.connect import connect
from headrace.client.spool import Spool as spool
from headrace.journal.journal import Journal
from headrace.journal.settings import JournalSettings
from headrace.kernel.errors import (
    Broken,
    Closed,
    Damaged,
    HeadraceError,
    MissingExtra,
    Refused,
    Retryable,
)
from headrace.log.batcher import FlushPolicy
from headrace.log.channel import Channel, channel
from headrace.log.queue import Reader, Writer, reader, writer
from headrace.log.settings import Settings
from headrace.store import Store
from headrace.store import open_store as open  # noqa: A004
from headrace.stream.agreement import StreamConfig
from headrace.stream.entry import Entry
from headrace.stream.listener import STOP
from headrace.stream.places import END, START, at_key
from headrace.stream.stream import Stream

__version__ = "0.1.0"

__all__ = [
    "END",
    "START",
    "STOP",
    "Broken",
    "Channel",
    "Closed",
    "Damaged",
    "Entry",
    "FlushPolicy",
    "HeadraceError",
    "Journal",
    "JournalSettings",
    "MissingExtra",
    "Reader",
    "Refused",
    "Retryable",
    "Settings",
    "Store",
    "Stream",
    "StreamConfig",
    "Writer",
    "at_key",
    "channel",
    "connect",
    "open",
    "reader",
    "spool",
    "writer",
]


def __getattr__(name: str) -> types.ModuleType:
    """`hr.spark` without an import of its own; Spark is loaded by those who use it."""
    if name != "spark":
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    try:
        return importlib.import_module("headrace.spark")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] in ("pyspark", "pandas", "google"):
            raise MissingExtra("this needs Spark: pip install 'headrace[spark]'") from error
        raise
