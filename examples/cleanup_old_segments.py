"""A cron job that removes what is older than seven days from logs that nobody is writing.

    0 3 * * *   python cleanup_old_segments.py /var/spool/readings /var/spool/events

A log can do this by itself: give it `Retention(age_s=...)` when it is created, and old segments go whenever
one is finalized. This script is for logs that are written rarely, or were made without such a policy. Only
whole, finalized segments go. Without arguments it makes a log with a past, and cleans that.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

import headrace as hr
from headrace.kernel.clock import ManualClock, SystemClock
from headrace.log import Log, Retention
from headrace.log.queue import RAW_SCHEMA

DAY_S = 24 * 3600
KEEP_S = 7 * DAY_S


def clean(path: str | Path) -> str:
    """Remove the segments of the log at `path` that are too old; what was done."""
    with Log.open(path, read_only=True) as log:
        stored = log.settings
    seven_days = replace(stored, retention=replace(stored.retention, age_s=KEEP_S))
    try:
        with Log.open(path, settings=seven_days) as log:
            before = log.info()
            log.retain()
            after = log.info()
    except hr.HeadraceError as error:  # a writer is at work, the disk failed, …: the next run tries again
        return f"{path}: {error.code}: {error}"
    return (
        f"{path}: removed {after.first_index - before.first_index} entries, "
        f"{before.segments - after.segments} segments, {before.bytes - after.bytes} bytes"
    )


def make_a_past(path: Path) -> None:
    """A log with a segment a day for the last ten days, by a clock that is set by hand."""
    shutil.rmtree(path, ignore_errors=True)
    clock = ManualClock(SystemClock().now_us())
    clock.advance(-10 * DAY_S)
    with Log.open(path, RAW_SCHEMA, hr.Settings(retention=Retention()), clock=clock) as log:
        for _ in range(10):
            log.append(pa.table({"data": [b"x" * 100] * 10}, schema=RAW_SCHEMA))
            clock.advance(DAY_S)
            log.roll()


if __name__ == "__main__":
    paths = sys.argv[1:]
    if not paths:
        make_a_past(Path("old-data"))
        paths = ["old-data"]
    for path in paths:
        print(clean(path))
