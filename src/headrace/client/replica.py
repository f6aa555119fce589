"""Replicas: a local copy of a node's stream or journal, kept up to date for as long as one wants.

    replica = Replica(store, NodeLine("http://there:7400"), "orders")
    await replica.run()         # until stop(), or an error that waiting does not mend

It asks for the frames after what it has, lands them, makes them durable, and goes on. When the line breaks,
or the node is away, or the disk is full, it tries again, later each time. Nobody else can write to the local
one all that time. What waiting does not mend is raised: a source that has another history, or does not let us
in, or a stream that has removed what the copy needs. A copy of a journal begins anew then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from headrace.client.frames import frames_of
from headrace.client.node_line import NodeLine
from headrace.kernel.backoff import Backoff
from headrace.kernel.errors import HeadraceError, NotFound, Refused, Trimmed, by_code
from headrace.log.copy import LogCopy, Origin
from headrace.log.frame import Kind
from headrace.log.frame_stream import FrameParser, Note, Sent
from headrace.store import Store

T = TypeVar("T")
Kinds = Literal["streams", "journals"]
Phase = Literal["starting", "following", "waiting", "ended"]
_BACKOFF = Backoff(first_s=0.1, factor=2.0, longest_s=15.0)
_ONCE_ATTEMPTS = 5
_logger = logging.getLogger("headrace.replica")


@dataclass(slots=True)
class ReplicaState:
    """How a replica is doing."""

    name: str
    source: Origin
    kind: Kinds = "streams"
    phase: Phase = "starting"
    next_index: int = 0
    source_end: int | None = None
    """Where the source ended when it last said so."""
    entries: int = 0
    bytes: int = 0
    """What came since this replica was started."""
    connections: int = 0
    error: str = ""
    """Why it waits, or has ended."""

    @property
    def lag(self) -> int | None:
        """How many entries it is behind, as far as is known."""
        return None if self.source_end is None else max(0, self.source_end - self.next_index)


class Replica:
    def __init__(
        self,
        store: Store,
        line: NodeLine,
        name: str,
        *,
        kind: Kinds = "streams",
        local: str | None = None,
        patient: bool = False,
        on_grown: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """A copy of the stream or journal `name` of a node, under that name or a `local` one.

        The line is its own. `patient` waits for one that is not there yet. `on_grown` is told when the copy
        has a new schema.
        """
        self._store = store
        self._line = line
        self._patient = patient
        self._on_grown = on_grown
        self._copy: LogCopy | None = None
        self._anew = False
        """A journal says all that is alive again and again: what we lack of the past is not needed."""
        self._following: asyncio.Task[None] | None = None
        self._stopped = False
        self.state = ReplicaState(local or name, Origin(line.url, name), kind)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"headrace-replica-{self.state.name}")

    async def run(self, *, once: bool = False) -> None:
        """Follow until `stop`; or, with `once`, until everything is here that the source has now."""
        if self._stopped:
            return
        self._following = asyncio.ensure_future(self._follow(once))
        try:
            await self._following
        except asyncio.CancelledError:
            self._following.cancel()
            if not self._stopped:
                raise
        except HeadraceError as error:
            self.state.error = str(error)
            raise
        finally:
            self.state.phase = "ended"
            await asyncio.shield(self._in_thread(self._close))
            self._thread.shutdown(wait=False)
            await self._line.close()

    def stop(self) -> None:
        """From the loop: `run` returns once what has come is on the disk."""
        self._stopped = True
        if self._following is not None:
            self._following.cancel()

    # --- in the loop

    async def _follow(self, once: bool) -> None:
        await self._in_thread(self._open)
        attempts = 0
        while True:
            before, error = self.state.next_index, ""
            try:
                await self._in_thread(self._ready)
                if await self._visit(once):
                    return
            except HeadraceError as failed:
                final = isinstance(failed, Refused) and not self._mended(failed)
                if final or (once and attempts + 1 >= _ONCE_ATTEMPTS):
                    raise
                error = str(failed)
            attempts = 0 if self.state.next_index > before else attempts + 1
            self._wait(error)
            await self._in_thread(self._tidy)
            await asyncio.sleep(_BACKOFF.pause_s(max(1, attempts)))

    def _mended(self, failed: Refused) -> bool:
        """Whether waiting, or beginning anew, helps after all."""
        if isinstance(failed, NotFound):
            return self._patient
        self._anew = isinstance(failed, Trimmed) and self.state.kind == "journals"
        return self._anew

    async def _visit(self, once: bool) -> bool:
        """Take what comes over one connection; whether that was all that is wanted."""
        copy, state, visit = self._copied(), self.state, _Visit()
        state.connections += 1
        async with frames_of(self._line, (state.kind, state.source.name), copy.claim) as pieces:
            async for piece in pieces:
                state.phase, state.error = "following", ""
                frames, failed = visit.taken(piece)
                owed = False
                if visit.note is not None and failed is None:
                    state.source_end = visit.note.end
                    owed = copy.noted(visit.note)
                if frames or owed:
                    await self._land(copy, frames)
                if failed is not None:
                    raise failed
                if once and visit.is_over(state.next_index):
                    return True
                if copy.done_with:
                    return False
        return False

    async def _land(self, copy: LogCopy, frames: list[Sent]) -> None:
        schema, before = copy.schema, copy.next_index
        try:
            await self._in_thread(_land, copy, frames)
        finally:
            self.state.next_index = copy.next_index
        self.state.entries += copy.next_index - before
        self.state.bytes += sum(each.header.frame_bytes for each in frames if each.header.kind != Kind.START)
        if schema is not None and schema != copy.schema and self._on_grown is not None:
            await self._on_grown(self.state.name)

    def _wait(self, error: str) -> None:
        state = self.state
        if error and error != state.error:
            _logger.warning("%s of %s waits: %s", state.name, state.source.url, error)
        state.phase, state.error = "waiting", error

    # --- in the thread that has the copy

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(work, *arguments))

    def _open(self) -> None:
        state = self.state
        if state.kind == "streams":
            self._copy = self._store.follow(state.name, state.source)
        else:
            self._copy = self._store.follow_journal(state.name, state.source, anew=self._anew)
            self._anew = False
        state.next_index = self._copy.next_index

    def _ready(self) -> None:
        """Before a visit. A copy whose disk failed is opened again, which recovers."""
        if self._copy is not None and (self._anew or self._copy.done_with):
            self._close()
        if self._copy is None:
            self._open()

    def _tidy(self) -> None:
        """After a visit: no half group stays."""
        if self._copy is not None and not self._copy.broken:
            self._copy.abandon()

    def _close(self) -> None:
        if self._copy is not None:
            copy, self._copy = self._copy, None
            copy.close()

    def _copied(self) -> LogCopy:
        assert self._copy is not None
        return self._copy


class _Visit:
    """What one connection has said."""

    def __init__(self) -> None:
        self._parser = FrameParser()
        self._goal: int | None = None
        self._caught_up = False
        self.note: Note | None = None
        """The last one."""

    def taken(self, piece: bytes) -> tuple[list[Sent], HeadraceError | None]:
        """The frames of a piece; and the error that came behind them, if one did."""
        frames = list[Sent]()
        try:
            for portion in self._parser.feed(piece):
                note = self.note = portion.note
                if note.error:
                    return frames, by_code(note.error, note.message)
                frames += portion.frames
                self._caught_up = not portion.frames
                self._goal = note.end if self._goal is None else self._goal
        except HeadraceError as error:
            return frames, error
        return frames, None

    def is_over(self, next_index: int) -> bool:
        """Whether all has come that was there at the beginning; a node that has no more says a note alone."""
        return self._caught_up or (self._goal is not None and next_index > self._goal)


def _land(copy: LogCopy, frames: list[Sent]) -> None:
    copy.land(frames)
    copy.sync()
