"""headrace: one durable log under every kind of messaging.

    open, Store, Stream        typed streams in a directory, without a server
    at_key, START, END, STOP   places in a stream, and how a listener ends
    writer, reader, channel    an embedded queue of bytes
    Settings                   durability, finalization, retention, compression
    HeadraceError              and its five kinds, by what the caller can do

The log of Arrow record batches below everything is `headrace.log.Log`.
"""

from headrace.kernel.errors import Broken, Closed, Damaged, HeadraceError, Refused, Retryable
from headrace.log.batcher import FlushPolicy
from headrace.log.channel import Channel, channel
from headrace.log.queue import Reader, Writer, reader, writer
from headrace.log.settings import Settings
from headrace.stream.listener import STOP
from headrace.stream.places import END, START, at_key
from headrace.stream.store import Store, StreamConfig
from headrace.stream.store import open_store as open  # noqa: A004
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
    "FlushPolicy",
    "HeadraceError",
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
    "open",
    "reader",
    "writer",
]
