"""headrace: one durable log under every kind of messaging.

writer, reader, channel   an embedded queue of bytes
Log (in headrace.log)     the log of Arrow record batches below everything
"""

from headrace.kernel.errors import Broken, Closed, Damaged, HeadraceError, Refused, Retryable
from headrace.log.batcher import FlushPolicy
from headrace.log.channel import Channel, channel
from headrace.log.queue import Reader, Writer, reader, writer
from headrace.log.settings import Settings

__version__ = "0.1.0"

__all__ = [
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
    "Writer",
    "channel",
    "reader",
    "writer",
]
