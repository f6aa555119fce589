"""The appender: what turns batches into frames at the end of the log.

One appender holds the log's writer lock, its active segment and the folded state. It is used by one thread
at a time (`Log` sees to that); only `sync` runs beside it. State moves only after the bytes are written, so
an error leaves it as it was. After a failure that leaves the disk in doubt nothing more can be appended:
`failure` says why, and reopening recovers. So it is after an interrupt (Ctrl-C, no memory left) while frames
are written or segments change: they and the state may not belong together any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pyarrow as pa

from headrace.kernel.clock import Clock
from headrace.kernel.errors import Broken, Closed, DiskFull, Fenced, HeadraceError, KeyOrder, LogFull
from headrace.log.active import ActiveSegment
from headrace.log.disk import Disk, File
from headrace.log.frame import Kind
from headrace.log.framing import End, Frames, Framing
from headrace.log.lock import WriterLock
from headrace.log.mark import Mark
from headrace.log.meta import Meta, save_meta
from headrace.log.reach import Reach
from headrace.log.recover import recover
from headrace.log.replace_active import cut_log, plan_cut
from headrace.log.retention import removable, remove_trimmed
from headrace.log.roll import must_roll, next_segment, ring_is_full
from headrace.log.segment_reader import Batch, Head
from headrace.log.state import Commit, LogState, encode_commit

Told = Callable[[Sequence[Batch | Head]], None]
"""Is told of batches and moves of HEAD as they are written, just as readers will see them.

Nothing at all: what was written is to be read.
"""


class Written(NamedTuple):
    """How far the log had been written at some moment, and the file to sync for it."""

    ticket: int
    next_index: int
    head_key: int
    file: File


class Appender:
    def __init__(
        self,
        disk: Disk,
        directory: Path,
        meta: Meta,
        state: LogState,
        active: ActiveSegment,
        lock: WriterLock,
        clock: Clock,
    ) -> None:
        self.meta = meta
        self.state = state
        self.active = active
        self.tickets = 0
        self.failure: Broken | None = None
        self.told: Told | None = None
        self._disk = disk
        self._directory = directory
        self._lock = lock
        self._clock = clock
        self.framing = Framing(meta, state, clock)
        self._held: list[Frames] = []
        self._syncing = threading.Lock()
        self._closed = False
        self.reach = Reach(Mark.open(disk, directory, write=True), state)

    def begin(self, base_index: int, lost_until: int) -> None:
        """Be ready: indexes up to `lost_until` that were durable once and are gone are left out for good.

        The gap is on the disk before the mark, which knew of the loss, is written again.
        """
        if lost_until > self.state.next_index:
            frames = Frames()
            self.framing.add_marker(
                frames, Kind.GAP, self.state.next_index, self.state.next_index, lost_until
            )
            self.take(frames, tell=False)
            self.write_held()
            self._sync_file(self.active.file)
            self.reach.synced(self.state.next_index, 0)
        if base_index > self.state.base_index:
            self.trim(base_index)  # a frame says so before the segments go
        self.remove_trimmed()
        self.write_mark()

    # --- what can be appended

    def append(
        self, batches: Sequence[pa.RecordBatch], commit: Commit | None = None, *, beyond_limit: bool = False
    ) -> int:
        """Append batches, as one atomic group if there is a commit; the index of the first entry."""
        self.check()
        base = self.state.next_index
        frames = Frames()
        end = self.framing.add_batches(frames, batches, End.of(self.state), grouped=commit is not None)
        if commit is not None:
            self.framing.add_marker(frames, Kind.COMMIT, end.next_index, end.head, body=encode_commit(commit))
        self.take(frames, beyond_limit=beyond_limit)
        if self.told is not None:
            self.told([Batch.of(*each) for each in zip(frames.headers, batches, strict=False)])
        return base

    def head(self, key: int) -> None:
        """Promise that no later entry has a smaller order key."""
        self.check()
        if self.framing.key is None:
            raise KeyOrder("the order key of this log is the index: HEAD moves with the entries only")
        if key < self.state.head_key:
            raise KeyOrder(
                f"HEAD cannot go back from {self.framing.say(self.state.head_key)} to {self.framing.say(key)}"
            )
        frames = Frames()
        self.framing.add_marker(frames, Kind.HEAD, self.state.next_index, key)
        self.take(frames)
        if self.told is not None:
            self.told([Head(key, self.state.next_index)])

    def trim(self, before: int) -> None:
        """Declare entries below `before` gone, and remove the segments that hold no others."""
        self.check()
        if before > self.state.base_index:
            frames = Frames()
            self.framing.add_marker(frames, Kind.BASE, self.state.next_index, before)
            self.take(frames)
            self.write_held()
            self._sync_file(self.active.file)
        self.remove_trimmed()

    # --- getting it written

    def take(self, frames: Frames, *, tell: bool = True, beyond_limit: bool = False) -> None:
        """Write frames that were made for the end of this log, now or with those that are held back."""
        buffers = self.meta.settings.write_buffers if self.told is None else 1  # readers look when told
        if len(self._held) >= buffers:
            self.write_held()
        self.make_room(frames, beyond_limit=beyond_limit or frames.batches == 0)
        try:
            if buffers > 1:
                self._held.append(frames)
            else:
                self.write(frames)
            self.apply(frames)
        except HeadraceError:
            raise
        except BaseException as error:
            self.give_up(error)
        if tell and not self._held:
            self.write_mark()

    def apply(self, frames: Frames) -> None:
        """The frames are written: they count."""
        headers = frames.headers
        for header, body in zip(headers, frames.bodies, strict=True):
            self.state.apply(header, body)
        self.tickets += len(headers)

    def write(self, frames: Frames) -> None:
        """Put the frames behind the last one. They do not count before `apply`."""
        try:
            self.active.write(frames.headers, frames.parts, frames.size_bytes)
        except DiskFull:
            raise
        except BaseException as error:
            self.give_up(error)

    def write_held(self) -> None:
        """Write what is held back. What a full disk refuses stays held, and can be tried again."""
        if not self._held:
            return
        while self._held:
            try:
                self.write(self._held[0])
                del self._held[0]
            except HeadraceError:
                raise
            except BaseException as error:
                self.give_up(error)
        self.write_mark()

    def make_room(self, frames: Frames, *, beyond_limit: bool = True) -> None:
        """Begin a new segment if the active one is full by its policy or its container."""
        if must_roll(self.active, self.meta.settings, frames, self._held, self._clock.now_us()):
            self.roll(beyond_limit=beyond_limit)

    # --- segments

    def roll(self, *, beyond_limit: bool = False) -> None:
        """Finalize the active segment and begin the next one.

        `beyond_limit` lets it have one container more: a full ring must still be able to trim. Markers do,
        and those who have to say something first.
        """
        self.check()
        self.write_held()
        if not beyond_limit:
            self._check_room_for_container()
        self._begin_segment(self.meta, self.framing)
        self.apply_retention()

    def change_meta(self, meta: Meta) -> None:
        """Go on with another meta: its schema holds from the next segment, which begins now; or not."""
        self.check()
        framing = Framing(meta, self.state, self._clock)
        self.write_held()
        self._check_room_for_container()
        save_meta(self._disk, self._directory, meta)  # first: opening finishes what a crash leaves undone
        try:
            self._begin_segment(meta, framing)
        except DiskFull:
            with contextlib.suppress(HeadraceError):
                save_meta(self._disk, self._directory, self.meta)
            raise
        with contextlib.suppress(DiskFull):  # it is done; retention has its turn again
            self.apply_retention()

    def _begin_segment(self, meta: Meta, framing: Framing) -> None:
        """Go on in a new segment, with this meta; after a DiskFull in the old one, with the old meta."""
        now_us = self._clock.now_us()
        try:
            self.active = next_segment(self._disk, meta, self.state, self.active, now_us, self.check)
            self.meta, self.framing = meta, framing
        except DiskFull:
            raise
        except BaseException as error:
            self.give_up(error)
        self.reach.synced(self.state.next_index, self.state.head_key)
        self.write_mark()

    def _check_room_for_container(self) -> None:
        settings = self.meta.settings
        if ring_is_full(self._disk, self._directory, settings):
            self.apply_retention()
        if ring_is_full(self._disk, self._directory, settings):
            assert settings.containers is not None
            raise LogFull(
                f"all {settings.containers.limit} containers of {self._directory} hold live entries: "
                "trim it, or reopen it with a higher limit"
            )

    def apply_retention(self) -> None:
        """Remove what the retention policy lets go."""
        before = removable(self._disk, self._directory, self.meta, self.state, self._clock.now_us())
        if before > self.state.base_index:
            self.trim(before)

    def remove_trimmed(self) -> None:
        """Remove the files of segments that lie wholly below the base."""
        self.check()
        containers = self.meta.settings.containers
        remove_trimmed(self._disk, self._directory, containers, self.state.base_index)

    # --- durability and the end

    def written(self) -> Written:
        """What a sync that begins now will make durable: all of it, so nothing may be held back."""
        self.write_held()
        return Written(self.tickets, self.state.next_index, self.state.head_key, self.active.file)

    def sync(self, written: Written) -> None:
        """Make `written` durable. Runs beside appends; a segment finalized meanwhile is synced already."""
        with self._syncing:
            if self._closed:
                raise Closed(f"the log {self._directory} was closed before this sync")
            self._sync_file(written.file)
            self.check()  # acknowledged is only what was synced before anyone took over
            self.reach.synced(written.next_index, written.head_key)
            self.write_mark()

    def _sync_file(self, file: File) -> None:
        try:
            file.sync()
        except Broken as error:
            raise self.fail(error) from error

    def cut(self, index: int) -> Appender:
        """Cut off the entries from `index` on; the appender to go on with."""
        self.check()
        epoch = self.state.epoch + 1
        plan = plan_cut(self._disk, self._directory, self.meta, index, epoch, self.state.base_index)
        try:
            with self._syncing:  # one that is under way tells of what is not cut yet
                # The mark first: a crash after the cut must not take what was cut for lost.
                self.reach.tell_cut(index, epoch)
                cut_log(self._disk, self._directory, self.meta, plan, self.check)
                self.check()
                recovered = recover(self._disk, self._directory, self.meta, self._clock)
                end = recovered.state, recovered.active
                after = Appender(self._disk, self._directory, self.meta, *end, self._lock, self._clock)
                after.tickets, after.told = self.tickets, self.told
                after.begin(recovered.base_index, recovered.lost_until)
                if recovered.meta.schema != self.meta.schema:
                    after.roll(beyond_limit=True)  # the log was cut in a segment of an older schema
                self.reach.close()
            return after
        except BaseException as error:
            self.give_up(error)

    def check(self) -> None:
        """Raise why nothing can be appended or acknowledged any more, if so."""
        if self.failure is not None:
            raise self.failure
        if not self._lock.held:
            raise self.fail(
                Fenced(f"another writer took {self._directory} over: nothing more is written here")
            )

    def fail(self, error: HeadraceError) -> Broken:
        """From here on nothing can be appended."""
        failure = error if isinstance(error, Broken) else Broken(str(error))
        if self.failure is None:
            self.failure = failure
            self.reach.stop(in_doubt=not isinstance(failure, Fenced))
        return self.failure

    def give_up(self, error: BaseException) -> NoReturn:
        """The same for whatever has come while something was half done; raise it."""
        if isinstance(error, HeadraceError):
            raise self.fail(error) from error
        self.fail(Broken(f"writing to {self._directory} was interrupted ({error!r}): reopen it"))
        raise error

    def write_mark(self) -> None:
        """Tell readers in all processes how far the log reaches."""
        self.reach.tell()

    def close(self, *, clean: bool) -> None:
        if clean and self.failure is None and self._lock.held:
            with contextlib.suppress(HeadraceError):
                self.write_held()
                self.active.give_back()
                self.reach.tell_closed()
        with self._syncing:  # a file that is being synced stays: its number could be another file's by then
            self._closed = True
            self.reach.close()
            self.active.file.close()
        self._lock.release()
