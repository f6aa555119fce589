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

A copy that was away while its source swept beyond it cannot go on. It begins anew, in the directory `anew`
beside its log, and takes the place of the old one when it is whole.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace.journal.engine import LOG_DIRECTORY
from headrace.journal.errors import JournalTaken, NotWhole
from headrace.journal.replay import STATE
from headrace.kernel.clock import Clock
from headrace.kernel.errors import HeadraceError, NotFound, Refused, WriterTaken
from headrace.log.copy import LogCopy, Origin, release
from headrace.log.disk import Disk
from headrace.log.frame_stream import Note
from headrace.log.lock import WriterLock
from headrace.log.meta import Meta, load_meta
from headrace.log.positions import PositionFile, read_positions

_ANEW, _OLD = "anew", "old"


class JournalCopy(LogCopy):
    """The log of a journal, whose frames come from elsewhere."""

    noun = "journal"

    def __init__(self, disk: Disk, path: Path, origin: Origin, clock: Clock) -> None:
        """Use `follow`."""
        super().__init__(disk, path, origin, clock)
        self.replaces: WriterLock | None = None
        """That of the log whose place it is to take: nobody else may have it."""
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
        self.let_go(min(note.base, note.state))  # what the source lost by accident stays
        self._told = None

    def abandon(self) -> None:
        """The line is gone, and with it what was told: another source may have other events at that end."""
        super().abandon()
        self._told = None

    @property
    def done_with(self) -> bool:
        """Whether it is whole, and takes its place when it is closed."""
        return super().done_with or (self.replaces is not None and _is_whole(self._disk, self._path))

    def close(self) -> None:
        whole = self.replaces is not None and _is_whole(self._disk, self._path)
        try:
            super().close()
        finally:
            if self._state is not None:
                self._state.close()
                self._state = None
            if self.replaces is not None:
                lock, self.replaces = self.replaces, None
                try:
                    if whole:
                        _take_place(self._disk, self._path.parent)
                finally:
                    lock.release()

    @property
    def _reached(self) -> bool:
        return self._told is not None and self.claim is not None and self.next_index >= self._told.end


def follow(disk: Disk, path: Path, origin: Origin, *, anew: bool = False) -> JournalCopy:
    """The journal at `path` as a copy of one elsewhere: it begins with its first frame, or goes on.

    `anew`: it begins beside what is there, whose place it takes when it is whole, and closed.
    """
    disk.make_directory(path)
    disk.sync_dir(path.parent)
    log, beside = path / LOG_DIRECTORY, path / _ANEW
    try:
        finish(disk, path)
        if not anew:
            return JournalCopy.open(log, origin, disk=disk)
        lock = WriterLock.acquire(disk, log)
    except WriterTaken as error:
        raise JournalTaken(f"the journal {path.name!r}: {error}") from error
    try:
        if Origin.of(load_meta(disk, log)) is None:
            raise Refused(f"the journal {path.name!r} was made one of its own: choose another name with --as")
        shutil.rmtree(beside, ignore_errors=True)  # what was begun and never was whole
        copy = JournalCopy.open(beside, origin, disk=disk)
    except HeadraceError:
        lock.release()
        raise
    copy.replaces = lock
    return copy


def unfollow(disk: Disk, path: Path, partly: bool = False) -> Origin:
    """Make a copy a journal of its own, in which work goes on; where it came from.

    With `partly` also one that never was whole: with the jobs and values it happens to have.
    """
    log = path / LOG_DIRECTORY
    try:
        finish(disk, path)
        if disk.kind(log) == "nothing":
            raise NotFound(f"there is no journal {path.name!r} in {path.parent.parent}")
        if not partly:
            check_whole(disk, log, load_meta(disk, log))
        return release(log, disk=disk)
    except WriterTaken as error:
        raise JournalTaken(f"the journal {path.name!r} is being followed: {error}") from error


def finish(disk: Disk, path: Path) -> None:
    """What a crash kept from taking its place is done now. WriterTaken: somebody is about to do it."""
    log = path / LOG_DIRECTORY
    if not _is_whole(disk, path / _ANEW):
        return
    if disk.kind(log) == "nothing":
        _take_place(disk, path)
        return
    lock = WriterLock.acquire(disk, log)
    try:
        if Origin.of(load_meta(disk, log)) is not None:  # else it was made a journal of its own
            _take_place(disk, path)
    finally:
        lock.release()


def check_whole(disk: Disk, log: Path, meta: Meta) -> None:
    """NotWhole, if the log of a journal is a copy that has never had everything."""
    origin = Origin.of(meta)
    if origin is not None and not _is_whole(disk, log):
        raise NotWhole(f"{log.parent} is a copy of {origin} that is not whole yet: let it be followed on")


def _is_whole(disk: Disk, log: Path) -> bool:
    return STATE in read_positions(disk, log)


def _take_place(disk: Disk, path: Path) -> None:
    """The new log instead of the old one, in two steps."""
    shutil.rmtree(path / _OLD, ignore_errors=True)
    if disk.kind(path / LOG_DIRECTORY) != "nothing":
        disk.rename(path / LOG_DIRECTORY, path / _OLD)
    disk.rename(path / _ANEW, path / LOG_DIRECTORY)
    disk.sync_dir(path)
    shutil.rmtree(path / _OLD, ignore_errors=True)
