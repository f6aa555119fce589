"""Copies of logs: a log whose frames come from another log, and from nowhere else.

    copy = LogCopy.open(path, Origin("http://there:7400", "orders"))
    copy.claim                        # what to ask the source for; None: from its beginning
    copy.land(frames); copy.sync()    # the very frames, once each of them is known to come next

A copy has the id of its source, so that headers and bodies land as they came, with the same checksums, and a
copy of a copy is the same again. Segments are each copy's own: when they are finalized, what is trimmed.

Nothing is taken on trust: each frame must be whole, have the next index, keys and an epoch that do not go
back, and the schema that was told. Whatever is not so raises BadFrame, and the line is asked again from where
the copy stands. Groups become visible as a whole; a large one is written as it comes.

A copy never raises its epoch by itself, because the frames to come have that of the source. And what it lost
from its end it does not mark as lost: it asks for it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import BadFrame, Diverged, HeadraceError, Refused
from headrace.log.active import prepare_active
from headrace.log.appender import Appender
from headrace.log.claim import Claim, last_batch
from headrace.log.disk import Disk
from headrace.log.frame import Kind
from headrace.log.frame_stream import Note, Sent
from headrace.log.landing import Landing
from headrace.log.lock import WriterLock
from headrace.log.meta import COPY_OF, META_FILE, Meta, load_meta, save_meta
from headrace.log.open import Wanted, open_appender
from headrace.log.segment_name import Listing
from headrace.log.start import Start, decode_start


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a copy comes from."""

    url: str
    name: str

    def __str__(self) -> str:
        return f"{self.name!r} at {self.url}"

    @classmethod
    def of(cls, meta: Meta) -> Origin | None:
        """That of a log; None if it is no copy."""
        found = meta.extra.get(COPY_OF)
        return None if found is None else cls(**found)


class LogCopy:
    noun = "stream"
    """What people call the log."""

    def __init__(self, disk: Disk, path: Path, origin: Origin, clock: Clock) -> None:
        """Use `LogCopy.open`."""
        self._disk = disk
        self._path = path
        self._origin = origin
        self._clock = clock
        self._appender: Appender | None = None
        self._landing: Landing | None = None
        self._base_index = 0

    @classmethod
    def open(
        cls, path: Path, origin: Origin, *, disk: Disk | None = None, clock: Clock | None = None
    ) -> Self:
        """The copy at `path`, held and recovered; or one that begins with the first frame that lands."""
        copy = cls(disk or Disk(), path, origin, clock or SystemClock())
        if copy._disk.kind(path / META_FILE) == "file":
            meta = load_meta(copy._disk, path)
            if Origin.of(meta) is None:
                raise Refused(f"{path} is a {cls.noun} of its own, not a copy: choose another name with --as")
            if Listing.of(copy._disk.names(path)).segments:  # else it was made, and a crash came
                appender, _ = open_appender(copy._disk, path, Wanted(), copy._clock, copying=True)
                copy._hold(appender)
        return copy

    @property
    def claim(self) -> Claim | None:
        """What the copy has; None if nothing, not even a beginning."""
        if self._appender is None or self._landing is None:
            return None
        state = self._appender.state
        last = self._landing.last
        return Claim(self._appender.meta.id, state.next_index, state.head_key, state.epoch, last)

    @property
    def next_index(self) -> int:
        return 0 if self._appender is None else self._appender.state.next_index

    @property
    def first_index(self) -> int:
        return 0 if self._appender is None else self._appender.state.base_index

    @property
    def in_large_group(self) -> bool:
        """Whether a part of a group is written that does not count yet."""
        return self._landing is not None and self._landing.in_large_group

    @property
    def broken(self) -> bool:
        """Whether nothing can land any more, because the disk failed: opening it again recovers."""
        return self._appender is not None and self._appender.failure is not None

    @property
    def done_with(self) -> bool:
        """Whether it has to be closed and opened again before more can land."""
        return self.broken

    @property
    def schema(self) -> pa.Schema | None:
        return None if self._appender is None else self._appender.meta.schema

    def noted(self, note: Note) -> bool:
        """The source says where it stands; whether that is worth a `sync`, though nothing may land.

        Of what a new copy gets, the entries before the source's beginning stay hidden.
        """
        if self._appender is None:
            self._base_index = note.base
        return False

    def land(self, sent: Sequence[Sent]) -> None:
        """Append frames; after BadFrame those before the bad one are in the log."""
        try:
            for run in _runs(sent):
                self._land(run)
            self.let_go(self._base_index)
        except HeadraceError:
            raise
        except BaseException as error:  # frames may be written and not counted
            if self._appender is not None:
                self._appender.give_up(error)
            raise

    def _land(self, run: Sent | list[Sent]) -> None:
        if isinstance(run, Sent):
            self._start(decode_start(run.header, bytes(run.body), "the start frame that came"))
        elif self._landing is None:
            raise BadFrame("frames came before the start frame that says what they are")
        else:
            self._landing.land(run)

    def let_go(self, before: int) -> None:
        """Remove the entries below an index, if the copy reaches so far."""
        if self._appender is not None and self.first_index < before <= self.next_index:
            self._appender.trim(before)

    def sync(self) -> None:
        """Make all that has landed durable, and tell readers."""
        if self._appender is not None:
            self._appender.sync(self._appender.written())

    def abandon(self) -> None:
        """The line is gone: forget a group that did not come to its end."""
        if self._landing is not None:
            self._landing.abandon()

    def close(self) -> None:
        """Make durable what has landed, and give the log free."""
        if self._appender is None:
            return
        try:
            if not self.broken:
                self.abandon()
                self.sync()
        finally:
            self._appender.close(clean=True)
            self._appender = self._landing = None

    # --- inside

    def _hold(self, appender: Appender) -> None:
        extra = appender.meta.extra | {COPY_OF: asdict(self._origin)}
        if extra != appender.meta.extra:  # followed from another place than before
            appender.meta = appender.meta.replace(extra=extra)
            save_meta(self._disk, self._path, appender.meta)
        self._appender = appender
        self._landing = Landing(appender, last_batch(self._disk, self._path, appender.meta))

    def _start(self, start: Start) -> None:
        """A segment of the source begins here; or it is the one that holds where the copy ends."""
        if self._appender is None or self._landing is None:
            self._hold(self._create(start))
            return
        mine = self._appender.meta
        if start.meta.id != mine.id:
            raise Diverged(f"frames of {start.meta.id} came for a copy of {mine.id}: drop it and follow anew")
        self._landing.recall(start.state.commits.values())
        if start.header.base_index != self._landing.next_index:
            return
        self._landing.end_segment()
        schema, extra = start.meta.schema, start.meta.extra | {COPY_OF: asdict(self._origin)}
        if schema != self._landing.schema or extra != mine.extra:
            self.sync()  # or after a power cut the meta might be newer than entries that come again
            self._appender.change_meta(mine.replace(schema=schema, extra=extra))
            self._landing = Landing(self._appender, self._landing.last)

    def _create(self, start: Start) -> Appender:
        settings = replace(start.meta.settings, containers=None, write_buffers=1, durability="fsync")
        extra = start.meta.extra | {COPY_OF: asdict(self._origin)}
        meta = start.meta.replace(settings=settings, extra=extra)
        self._disk.make_directories(self._path)
        lock = WriterLock.acquire(self._disk, self._path)
        try:
            there = self._disk.names(self._path)
            if META_FILE in there and Origin.of(load_meta(self._disk, self._path)) is None:
                raise Refused(f"somebody made a {self.noun} at {self._path} meanwhile: choose another name")
            save_meta(self._disk, self._path, meta)
            state = start.state
            active = prepare_active(self._disk, self._path, meta, state, self._clock.now_us()).put(self._disk)
            appender = Appender(self._disk, self._path, meta, state, active, lock, self._clock)
            appender.begin(state.base_index, state.next_index)
        except BaseException:
            lock.release()
            raise
        return appender


def release(path: Path, *, disk: Disk | None = None, clock: Clock | None = None) -> Origin:
    """Make a copy a log of its own, under a new epoch; where it came from. Nobody may follow into it."""
    disk, clock = disk or Disk(), clock or SystemClock()
    origin = Origin.of(load_meta(disk, path))
    if origin is None:
        raise Refused(f"{path} is no copy: it takes entries already")
    appender, _ = open_appender(disk, path, Wanted(), clock, copying=True)
    try:
        appender = appender.cut(appender.state.next_index)
        extra: dict[str, Any] = {
            name: value for name, value in appender.meta.extra.items() if name != COPY_OF
        }
        appender.change_meta(appender.meta.replace(extra=extra))
    finally:
        appender.close(clean=True)
    return origin


def _runs(sent: Sequence[Sent]) -> list[Sent | list[Sent]]:
    """Start frames alone, and what is between them together."""
    runs: list[Sent | list[Sent]] = []
    for each in sent:
        if each.header.kind == Kind.START:
            runs.append(each)
        elif runs and isinstance(runs[-1], list):
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs
