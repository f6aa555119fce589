"""Large groups: an atomic group of any size, written as it comes.

Its batches are in the log long before its commit is, and count from then on. Without containers only, which
bound a group by themselves. After an error in the midst of it nothing can be appended any more: reopening
takes away the part that was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from headrace.kernel.errors import Broken
from headrace.log.appender import Appender
from headrace.log.frame import Kind
from headrace.log.framing import End, Frames
from headrace.log.state import Commit, encode_commit

_PORTION_BYTES = 32 << 20


def append_large_group(appender: Appender, batches: Iterable[pa.RecordBatch], commit: Commit) -> Commit:
    """Append the batches as one group; the commit as it was written."""
    appender.check()
    appender.write_held()
    appender.make_room(Frames())
    framing, end = appender.framing, End.of(appender.state)
    frames, written = Frames(), list[Frames]()
    begun = appender.active.offset
    try:
        for records in batches:
            end = framing.add_batches(frames, [records], end, grouped=True)
            if frames.size_bytes >= _PORTION_BYTES:
                appender.write(frames)
                frames.parts.clear()
                written.append(frames)
                frames = Frames()
        commit = replace(commit, next_index=end.next_index)
        framing.add_marker(frames, Kind.COMMIT, end.next_index, end.head, body=encode_commit(commit))
        appender.write(frames)
        written.append(frames)
        for portion in written:
            appender.apply(portion)
    except BaseException as error:
        if appender.active.offset > begun:
            appender.fail(Broken(f"a group was cut short ({error}): reopen the log"))
        raise
    appender.write_mark()
    if appender.told is not None:
        appender.told([])  # it may be larger than memory
    return commit
