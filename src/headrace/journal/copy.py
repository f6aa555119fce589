"""A copy of a journal: its log, which is a copy of another journal's, and what of it counts.

    source   |--- gone ---|--- history ---|------ counts ------|
                        base            state                 end

A sweep says anew at the log's end what is alive, and moves `state` on; then it trims. A copy does the same a
little later. It may do so only when it has all that was said anew, and that is before the `end` which the
source tells together with `base` and `state`. Until then it keeps what it has, so that a copy which has been
*whole* once stays so, whenever its source is lost.

A new copy is whole when it first reaches such an end. Before that it lacks what is said anew further on, and
nobody may take it for the journal. The position `state`, at which replay begins, is made then: that is the
sign.
"""

from __future__ import annotations

from pathlib import Path

from headrace.journal.engine import LOG_DIRECTORY
from headrace.journal.errors import JournalTaken, NotWhole
from headrace.journal.replay import STATE
from headrace.kernel.clock import Clock
from headrace.kernel.errors import WriterTaken
from headrace.log.copy import LogCopy, Origin, release
from headrace.log.disk import Disk
from headrace.log.frame_stream import Note
from headrace.log.meta import Meta, load_meta
from headrace.log.positions import PositionFile, read_positions


class JournalCopy(LogCopy):
    """The log of a journal, whose frames come from elsewhere."""

    noun = "journal"

    def __init__(self, disk: Disk, path: Path, origin: Origin, clock: Clock) -> None:
        """Use `JournalCopy.open`."""
        super().__init__(disk, path, origin, clock)
        self._told: Note | None = None
        """What to do once its end is here. One at a time: a source that is always ahead is caught up with."""
        self._state: PositionFile | None = None

    def noted(self, note: Note) -> bool:
        news = self._state is None or note.state > self._state.index or note.base > self.first_index
        if self._told is None and news:
            self._told = note
        return self._reached

    def sync(self) -> None:
        super().sync()
        note = self._told
        if note is None or not self._reached or self.in_large_group:
            return
        if self._state is None:
            self._state = PositionFile.open(self._disk, self._path, STATE)
        self._state.save(max(note.state, self._state.index))
        self.let_go(note.base)
        self._told = None

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._state is not None:
                self._state.close()
                self._state = None

    @property
    def _reached(self) -> bool:
        return self._told is not None and self.claim is not None and self.next_index >= self._told.end


def follow(disk: Disk, path: Path, origin: Origin) -> JournalCopy:
    """The journal at `path` as a copy of one elsewhere: it begins with its first frame, or goes on."""
    disk.make_directory(path)
    disk.sync_dir(path.parent)
    try:
        return JournalCopy.open(path / LOG_DIRECTORY, origin, disk=disk)
    except WriterTaken as error:
        raise JournalTaken(f"the journal {path.name!r}: {error}") from error


def unfollow(disk: Disk, path: Path) -> Origin:
    """Make a copy a journal of its own, in which work goes on; where it came from."""
    log = path / LOG_DIRECTORY
    check_whole(disk, log, load_meta(disk, log))
    try:
        return release(log, disk=disk)
    except WriterTaken as error:
        raise JournalTaken(f"the journal {path.name!r} is being followed: {error}") from error


def check_whole(disk: Disk, log: Path, meta: Meta) -> None:
    """NotWhole, if the log of a journal is a copy that has never had everything."""
    origin = Origin.of(meta)
    if origin is not None and STATE not in read_positions(disk, log):
        raise NotWhole(f"{log.parent} is a copy of {origin} that is not whole yet: let it be followed on")
