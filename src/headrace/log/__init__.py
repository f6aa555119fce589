"""The log: a segmented, checksummed, append-only log of Arrow record batches.

A *log* is a directory with one writer and any number of readers. It is made of *segments*, files whose
names say which entries they hold. A segment is a row of *frames*, each a 64-byte header and a body. Most
frames are *batches*: Arrow record batches, whose rows are the log's *entries*, numbered from 0.

Where to look: `log` is the face; `frame` and `body` are the format (docs/formats/log.md tells it on one
page); `appender` writes and `commit` shares syncs; `cursor` reads; `recover`, `verify` and `repair` deal
with crashes and damage; `disk` is the only module that touches files.

`queue`, `channel` and `slab` are the byte-queue face: a log of raw bytes, after Queuefka.
"""

from headrace.log.channel import Channel
from headrace.log.cursor import Cursor
from headrace.log.damage import Damage, DamagedEntries, Recovery, Report
from headrace.log.info import LogInfo
from headrace.log.log import Log
from headrace.log.queue import Reader, Writer
from headrace.log.repair import RepairReport, repair
from headrace.log.segment_reader import Batch, Head
from headrace.log.settings import SCAN, SHERLOCK, Containers, Finalize, Retention, Settings
from headrace.log.state import Commit

__all__ = [
    "SCAN",
    "SHERLOCK",
    "Batch",
    "Channel",
    "Commit",
    "Containers",
    "Cursor",
    "Damage",
    "DamagedEntries",
    "Finalize",
    "Head",
    "Log",
    "LogInfo",
    "Reader",
    "Recovery",
    "RepairReport",
    "Report",
    "Retention",
    "Settings",
    "Writer",
    "repair",
]
