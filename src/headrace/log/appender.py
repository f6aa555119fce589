"""The appender: what turns batches into frames at the end of the log.

One appender holds the log's writer lock, its active segment and the folded state. It is used by one thread
at a time (`Log` sees to that); only `sync` runs beside it. State moves only after the bytes are written, so
an error leaves it as it was. After a failure that leaves the disk in doubt nothing more can be appended:
`failure` says why, and reopening recovers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from headrace.kernel.clock import Clock
from headrace.kernel.errors import Broken, DiskFull, Fenced, HeadraceError, KeyOrder, LogFull, TooLarge
from headrace.kernel.limits import BATCH_BYTES_MAX, INDEX_MAX
from headrace.log.active import ActiveSegment, prepare_active
from headrace.log.body import BodyEncoder
from headrace.log.disk import BytesLike, Disk, File
from headrace.log.frame import Header, Kind, checksum, encode_header, marks, padding
from headrace.log.keys import KeyColumn
from headrace.log.lock import WriterLock
from headrace.log.mark import Extent, Mark
from headrace.log.meta import Meta, save_meta
from headrace.log.recover import recover
from headrace.log.replace_active import cut_log, plan_cut
from headrace.log.retention import free_or_remove, removable
from headrace.log.segment_name import Listing
from headrace.log.state import Commit, LogState, encode_commit

_PORTION_BYTES = 32 << 20


@dataclass(slots=True)
class _Frames:
    """Frames that are written together."""

    headers: list[Header] = field(default_factory=list)
    parts: list[BytesLike] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    bytes: int = 0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class _End:
    """Where the log ends, or will when frames that are being made are written."""

    index: int
    head: int
    last: int | None

    @classmethod
    def of(cls, state: LogState) -> _End:
        return cls(state.next_index, state.head_key, state.last_key)


@dataclass(frozen=True, slots=True)
class Written:
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
        self.durable_index = state.next_index
        self._durable_head = state.head_key
        self.tickets = 0
        self.failure: Broken | None = None
        self._disk = disk
        self._directory = directory
        self._lock = lock
        self._clock = clock
        self._encoder = BodyEncoder(meta.schema, meta.settings.compression)
        self._key = KeyColumn(meta.schema, meta.order_by) if meta.order_by else None
        self._held: list[_Frames] = []
        self._mark = Mark.open(disk, directory, write=True)

    def begin(self, base_index: int, lost_until: int) -> None:
        """Be ready: indexes up to `lost_until` that were durable once and are gone are left out for good.

        The gap is on the disk before the mark, which knew of the loss, is written again.
        """
        if lost_until > self.state.next_index:
            frames = _Frames()
            self._add_marker(frames, Kind.GAP, self.state.next_index, self.state.next_index, lost_until)
            self._take(frames, tell=False)
            self.write_held()
            self._sync_file(self.active.file)
            self.durable_index = self.state.next_index
        if base_index > self.state.base_index:
            self.trim(base_index)  # a frame says so before the segments go
        self.remove_trimmed()
        self.write_mark()

    # --- what can be appended

    def append(self, batches: Sequence[pa.RecordBatch], commit: Commit | None = None) -> int:
        """Append batches, as one atomic group if there is a commit; the index of the first entry."""
        self.check()
        base = self.state.next_index
        frames = _Frames()
        end = self._add_batches(frames, batches, _End.of(self.state), grouped=commit is not None)
        if commit is not None:
            self._add_marker(frames, Kind.COMMIT, end.index, end.head, body=encode_commit(commit))
        self._take(frames)
        return base

    def append_large_group(self, batches: Iterable[pa.RecordBatch], commit: Commit) -> Commit:
        """The same for a group of any size: it is written as it comes, and counts once its commit is there.

        Without containers only, which bound a group by themselves. After an error in the midst of it nothing
        can be appended any more: reopening takes away the part that was written.
        """
        self.check()
        self.write_held()
        self._make_room(_Frames())
        end, frames, written = _End.of(self.state), _Frames(), list[_Frames]()
        try:
            for records in batches:
                end = self._add_batches(frames, [records], end, grouped=True)
                if frames.bytes >= _PORTION_BYTES:
                    self._write(frames)
                    frames.parts.clear()
                    written.append(frames)
                    frames = _Frames()
            commit = replace(commit, next_index=end.index)
            self._add_marker(frames, Kind.COMMIT, end.index, end.head, body=encode_commit(commit))
            self._write(frames)
        except BaseException as error:
            if written:
                self.fail(Broken(f"a group was cut short ({error}): reopen the log"))
            raise
        for portion in (*written, frames):
            self._apply(portion)
        self.write_mark()
        return commit

    def _add_batches(
        self, frames: _Frames, batches: Sequence[pa.RecordBatch], end: _End, *, grouped: bool
    ) -> _End:
        """Add a frame for each batch; where the log will end then."""
        index, head, last = end.index, end.head, end.last
        for records in batches:
            body = self._encoder.encode(records)
            if body.body_bytes > BATCH_BYTES_MAX:
                raise TooLarge(f"a batch of {body.body_bytes} bytes: at most {BATCH_BYTES_MAX} fit one frame")
            first_key, last_key = self._keys(records, index, head, last)
            header = Header(
                Kind.BATCH,
                index,
                len(records),
                first_key,
                last_key,
                self._clock.now_us(),
                self.state.epoch,
                body.body_bytes,
                body.body_sum,
                body.marks | marks(grouped=grouped),
            )
            self._add(frames, header, body.pieces)
            index, head, last = index + len(records), last_key, last_key
        if index > INDEX_MAX:
            raise TooLarge(f"the log would pass index {INDEX_MAX}")
        return _End(index, head, last)

    def head(self, key: int) -> None:
        """Promise that no later entry has a smaller order key."""
        self.check()
        if self._key is None:
            raise KeyOrder("the order key of this log is the index: HEAD moves with the entries only")
        if key < self.state.head_key:
            raise KeyOrder(f"HEAD cannot go back from {self._say(self.state.head_key)} to {self._say(key)}")
        frames = _Frames()
        self._add_marker(frames, Kind.HEAD, self.state.next_index, key)
        self._take(frames)

    def trim(self, before: int) -> None:
        """Declare entries below `before` gone, and remove the segments that hold no others."""
        self.check()
        if before > self.state.base_index:
            frames = _Frames()
            self._add_marker(frames, Kind.BASE, self.state.next_index, before)
            self._take(frames)
            self.write_held()
            self._sync_file(self.active.file)
        self.remove_trimmed()

    def _keys(self, records: pa.RecordBatch, index: int, head: int, last: int | None) -> tuple[int, int]:
        if self._key is None:
            return index, index + len(records) - 1
        first_key, last_key = self._key.span(records, strict=self.meta.strict)
        if first_key < head:
            raise KeyOrder(
                f"the order key {self._key.name!r} goes back from {self._say(head)} to {self._say(first_key)}"
            )
        if self.meta.strict and first_key == last:
            raise KeyOrder(f"the order key {self._key.name!r} stays at {self._say(last)}: it must increase")
        return first_key, last_key

    def _say(self, key: int) -> object:
        return key if self._key is None else self._key.decode(key)

    def _add(self, frames: _Frames, header: Header, pieces: Sequence[BytesLike], body: bytes = b"") -> None:
        frames.bytes += header.frame_bytes
        frames.batches += header.kind == Kind.BATCH
        frames.headers.append(header)
        frames.parts.append(encode_header(header, self.meta.salt))
        frames.parts.extend(pieces)
        frames.bodies.append(body)

    def _add_marker(
        self, frames: _Frames, kind: Kind, index: int, first: int, last: int | None = None, body: bytes = b""
    ) -> None:
        body += padding(len(body))
        header = Header(
            kind,
            index,
            0,
            first,
            first if last is None else last,
            self._clock.now_us(),
            self.state.epoch,
            len(body),
            checksum(body),
        )
        self._add(frames, header, [body], body)

    # --- getting it written

    def _take(self, frames: _Frames, *, tell: bool = True) -> None:
        if len(self._held) >= self.meta.settings.write_buffers:
            self.write_held()
        self._make_room(frames)
        if self.meta.settings.write_buffers > 1:
            self._held.append(frames)
        else:
            self._write(frames)
        self._apply(frames)
        if tell and not self._held:
            self.write_mark()

    def _apply(self, frames: _Frames) -> None:
        for header, body in zip(frames.headers, frames.bodies, strict=True):
            self.state.apply(header, body)
        self.tickets += len(frames.headers)

    def _write(self, frames: _Frames) -> None:
        try:
            self.active.write(frames.headers, frames.parts)
        except Broken as error:
            raise self.fail(error) from error

    def write_held(self) -> None:
        """Write what is held back. What a full disk refuses stays held, and can be tried again."""
        if not self._held:
            return
        while self._held:
            self._write(self._held[0])
            del self._held[0]
        self.write_mark()

    def _make_room(self, frames: _Frames) -> None:
        """Begin a new segment if the active one is full by its policy or its container."""
        containers, finalize, active = self.meta.settings.containers, self.meta.settings.finalize, self.active
        if containers:
            markers = frames.batches == 0
            batches = frames.batches + sum(held.batches for held in self._held)
            held_bytes = sum(held.bytes for held in self._held)
            if frames.bytes > active.room_in(containers.bytes, batches, markers=markers) - held_bytes:
                most = active.room_when_new(containers.bytes, frames.batches)
                if frames.bytes > most:
                    raise TooLarge(
                        f"{frames.bytes} bytes in one append: a container of this log takes {most}"
                    )
                self.roll(beyond_limit=markers)
            return
        full = (
            active.offset >= finalize.bytes
            or active.entries >= finalize.entries
            or self._clock.now_us() - active.created_us >= finalize.age_s * 1_000_000
        )
        if full and active.entries:
            self.roll()

    # --- segments

    def roll(self, *, beyond_limit: bool = False) -> None:
        """Finalize the active segment and begin the next one.

        The next one is prepared first, so that a full disk is noticed while nothing has changed.
        `beyond_limit` lets a marker have one container more: a full ring must still be able to trim.
        """
        self.check()
        self.write_held()
        if not beyond_limit:
            self._check_room_for_container()
        # One full of markers only is replaced, under the same name, by one that carries the same state.
        has_indexes = self.state.next_index > self.active.name.first_index
        now_us, old = self._clock.now_us(), self.active
        try:
            prepared = prepare_active(self._disk, self._directory, self.meta, self.state, now_us)
            try:
                if has_indexes:
                    old.write_ending(self.meta, self.state, now_us)
            except DiskFull:
                free_or_remove(self._disk, prepared.temporary, self.meta.settings.containers)
                raise
        except DiskFull:
            raise
        except HeadraceError as error:
            raise self.fail(error) from error
        self.check()
        try:
            if has_indexes:
                old.take_final_name(self._disk, self.state)
            self.active = prepared.put(self._disk)
        except HeadraceError as error:
            raise self.fail(error) from error
        self.durable_index = self.state.next_index
        self._durable_head = self.state.head_key
        self.write_mark()
        self.apply_retention()

    def change_meta(self, meta: Meta) -> None:
        """Go on with another meta: its schema holds from the next segment, which begins now."""
        self.check()
        encoder = BodyEncoder(meta.schema, meta.settings.compression)
        save_meta(self._disk, self._directory, meta)  # first: opening finishes what a crash leaves undone
        self.meta, self._encoder = meta, encoder
        self.roll()

    def _check_room_for_container(self) -> None:
        containers = self.meta.settings.containers
        if containers is None or containers.limit is None:
            return
        if self._containers_used() >= containers.limit:
            self.apply_retention()
        if self._containers_used() >= containers.limit:
            raise LogFull(
                f"all {containers.limit} containers of {self._directory} hold live entries: trim it, "
                "or reopen it with a higher limit"
            )

    def _containers_used(self) -> int:
        listing = Listing.of(self._disk.names(self._directory))
        return 0 if listing.free else len(listing.segments)

    def apply_retention(self) -> None:
        """Remove what the retention policy lets go."""
        before = removable(self._disk, self._directory, self.meta, self.state, self._clock.now_us())
        if before > self.state.base_index:
            self.trim(before)

    def remove_trimmed(self) -> None:
        """Remove the files of segments that lie wholly below the base."""
        gone = False
        self.check()
        for name in Listing.of(self._disk.names(self._directory)).finals:
            if name.next_index <= self.state.base_index:
                free_or_remove(self._disk, self._directory / str(name), self.meta.settings.containers)
                gone = True
        if gone:
            self._disk.sync_dir(self._directory)

    # --- durability and the end

    def written(self) -> Written:
        """What a sync that begins now will make durable."""
        return Written(self.tickets, self.state.next_index, self.state.head_key, self.active.file)

    def sync(self, written: Written) -> None:
        """Make `written` durable. Runs beside appends; a segment finalized meanwhile is synced already."""
        self._sync_file(written.file)
        self.check()  # acknowledged is only what was synced before anyone took over
        self.durable_index = max(self.durable_index, written.next_index)
        self._durable_head = max(self._durable_head, written.head_key)
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
            # The mark first: a crash after the cut must not take what was cut for lost.
            self._mark.write(Extent(self.state.base_index, index, min(index, self.durable_index), epoch))
            cut_log(self._disk, self._directory, self.meta, plan, self.check)
            self.check()
            recovered = recover(self._disk, self._directory, self.meta, self._clock)
            after = Appender(
                self._disk,
                self._directory,
                self.meta,
                recovered.state,
                recovered.active,
                self._lock,
                self._clock,
            )
            after.tickets = self.tickets
            after.begin(recovered.base_index, recovered.lost_until)
            if recovered.meta.schema != self.meta.schema:
                after.roll()  # the log was cut in a segment of an older schema
        except HeadraceError as error:
            raise self.fail(error) from error
        self._mark.close()
        return after

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
            if not isinstance(failure, Fenced):
                with contextlib.suppress(HeadraceError):
                    self._mark.write(replace(self.extent(), suspect=True))
        return self.failure

    def extent(self) -> Extent:
        state = self.state
        heads = state.head_key, self._durable_head
        return Extent(state.base_index, state.next_index, self.durable_index, state.epoch, *heads)

    def write_mark(self) -> None:
        """Tell readers in all processes how far the log reaches."""
        if self.failure is None:
            state = self.state
            with contextlib.suppress(HeadraceError):  # a hint: the segments are the truth
                self._mark.write_fields(
                    state.base_index,
                    state.next_index,
                    self.durable_index,
                    state.epoch,
                    state.head_key,
                    self._durable_head,
                )

    def close(self, *, clean: bool) -> None:
        if clean and self.failure is None and self._lock.held:
            with contextlib.suppress(HeadraceError):
                self._mark.write(replace(self.extent(), clean=True))
        self._mark.close()
        self.active.file.close()
        self._lock.release()
