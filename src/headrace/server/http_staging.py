"""Writing in large parts over HTTP: many send runs of rows, and one has all of them land at once.

PUT     /streams/{name}/staged/{query}/{batch}/{run}   one run: an Arrow IPC stream, with its checksum
DELETE  /streams/{name}/staged/{query}/{batch}/{run}   remove it
DELETE  /streams/{name}/staged/{query}                 remove all runs of a write that is given up
POST    /streams/{name}/land                           the runs that are named become one atomic group

The same for journals: there a run holds jobs (`journal.job_columns`), all of which are put in one operation.

A run is staged under an id of the sender's; the answer says the name by which it lands. Nobody sees staged
rows; what is not landed is removed after a week. All of this is safe to repeat.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import pyarrow as pa
from aiohttp import web

from headrace.journal.job_columns import JOB_COLUMNS
from headrace.kernel.errors import Refused, TooLarge
from headrace.kernel.names import checked_name
from headrace.log.disk import Disk, error_for
from headrace.log.keys import KeyColumn
from headrace.log.state import Commit
from headrace.server.http_door import visit_of
from headrace.server.http_errors import Handler, answer
from headrace.server.http_numbers import number
from headrace.server.http_publish import decoded
from headrace.server.node import Node
from headrace.server.staged_jobs import LandedJobs, land_jobs
from headrace.server.staged_landing import Landed, land_staged
from headrace.server.staged_run import RUN_BYTES_MAX, checked_id, keep_run, named_run
from headrace.stream.staging import Run, StagingArea, remove_runs
from headrace.wire.http_words import CHECKSUM

_STAGED_BYTES_MAX = 64 << 30
"""Of all writes to one stream together."""
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Berth:
    """Where runs for one stream or journal are staged, and what they must hold."""

    area: StagingArea
    schema: pa.Schema
    key: KeyColumn | None = None


BerthOf = Callable[[str], Awaitable[Berth]]


class StagingRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._landing: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """By journal: jobs land one after the other, also if whoever asked has gone meanwhile."""

    def routes(self) -> list[web.RouteDef]:
        return [
            *self._routes_of("streams", self._stream_berth, self.land),
            *self._routes_of("journals", self._journal_berth, self.land_jobs),
        ]

    def _routes_of(self, noun: str, berth: BerthOf, land: Handler) -> list[web.RouteDef]:
        run = f"/{noun}/{{name}}/staged/{{query}}/{{batch}}/{{run}}"
        return [
            web.put(run, partial(self.stage, berth)),
            web.delete(run, partial(self.discard, berth)),
            web.delete(f"/{noun}/{{name}}/staged/{{query}}", partial(self.clear, berth)),
            web.post(f"/{noun}/{{name}}/land", land),
        ]

    async def stage(self, berth_of: BerthOf, request: web.Request) -> web.Response:
        berth = await berth_of(request.match_info["name"])
        run_id, checksum = checked_id(request.match_info["run"]), _checksum(request)
        await self._node.in_pool(_check_room, berth.area, request.content_length or 0)
        async with self._received(request, berth.area, _place(request)) as raw:
            run = await self._node.in_pool(_kept, raw, run_id, checksum, berth)
        return answer({"run": Path(run.path).name, "rows": run.rows}, 201)

    async def discard(self, berth_of: BerthOf, request: web.Request) -> web.Response:
        berth = await berth_of(request.match_info["name"])
        run = named_run(berth.area.folder(_place(request)), request.match_info["run"])
        await self._node.in_pool(remove_runs, [run])
        return answer({"removed": request.match_info["run"]})

    async def clear(self, berth_of: BerthOf, request: web.Request) -> web.Response:
        berth, query = await berth_of(request.match_info["name"]), _query(request)
        await self._node.in_pool(berth.area.clear, query)
        return answer({"removed": query})

    async def land(self, request: web.Request) -> web.Response:
        desk = await self._node.stream(request.match_info["name"])
        wanted = decoded(await request.read(), Landed, '{"query": "…", "batch": 0, "runs": […]}')
        wanted.check()
        desk.lease.check(None)
        area = StagingArea.of(self._node.store.path, desk.stream.name)
        work = partial(land_staged, desk.stream.name, area, wanted)
        commit: Commit = await desk.ask(lambda publisher: publisher.lend(work))
        if not commit.repeated:
            desk.published_entries += commit.next_index - commit.base_index
        return answer({"first": commit.base_index, "next": commit.next_index, "repeated": commit.repeated})

    async def land_jobs(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        journal, area = await self._node.journal(name), (await self._journal_berth(name)).area
        wanted = decoded(await request.read(), LandedJobs, '{"query": "…", "batch": 0, "runs": […]}')
        wanted.check()
        lock = self._landing[name]

        def work() -> int | None:
            with lock:
                return land_jobs(journal, area, wanted)

        put = await self._node.in_pool(work)
        return answer({"put": put or 0, "repeated": put is None})

    async def _stream_berth(self, name: str) -> Berth:
        meta = (await self._node.stream(name)).stream.log.meta
        key = KeyColumn(meta.schema, meta.order_by) if meta.order_by else None
        return Berth(StagingArea.of(self._node.store.path, name), meta.schema, key)

    async def _journal_berth(self, name: str) -> Berth:
        await self._node.journal(name)
        return Berth(StagingArea.of_jobs(self._node.store.path, name), JOB_COLUMNS)

    @asynccontextmanager
    async def _received(self, request: web.Request, area: StagingArea, place: str) -> AsyncIterator[Path]:
        """The body as a file, which is gone afterwards unless it got another name."""
        raw = area.folder(place) / f".{uuid4().hex}.part"
        visit = visit_of(request)
        file = await self._node.in_pool(_opened, raw, area)
        try:
            size = 0
            with file:
                async for piece in request.content.iter_chunked(_PIECE_BYTES):
                    size += len(piece)
                    if size > RUN_BYTES_MAX:
                        raise TooLarge(f"a run has at most {RUN_BYTES_MAX} bytes: send it in several")
                    await self._node.in_pool(_write, file, piece, raw)
                    if visit is not None:
                        visit.let_go_of(len(piece))
            yield raw
        finally:
            await self._node.in_pool(raw.unlink, missing_ok=True)


def _opened(raw: Path, area: StagingArea) -> BinaryIO:
    """A place of which nothing is there counts as landed: so that it is there must outlive a power cut."""
    try:
        if not raw.parent.is_dir():
            raw.parent.mkdir(parents=True, exist_ok=True)
            for directory in (raw.parent.parent, area.path, area.path.parent, area.path.parent.parent):
                Disk().sync_dir(directory)
        return raw.open("xb", buffering=0)
    except OSError as error:
        raise error_for(error, raw) from error


def _write(file: BinaryIO, piece: bytes, raw: Path) -> None:
    try:
        while piece:
            piece = piece[file.write(piece) :]
    except OSError as error:
        raise error_for(error, raw) from error


def _kept(raw: Path, run_id: str, checksum: int, berth: Berth) -> Run:
    try:
        return keep_run(raw, run_id, checksum, berth.schema, berth.key)
    except OSError as error:
        raise error_for(error, raw) from error


def _check_room(area: StagingArea, size: int) -> None:
    if size > RUN_BYTES_MAX:
        raise TooLarge(f"a run has at most {RUN_BYTES_MAX} bytes, not {size}: send it in several")
    staged = 0
    for path in area.path.rglob("*.arrow") if area.path.is_dir() else ():
        try:
            staged += path.stat().st_size
        except FileNotFoundError:
            continue  # landed just now
    if staged + size > _STAGED_BYTES_MAX:
        raise TooLarge(f"{staged} bytes are staged for this stream already: let them land first")


def _checksum(request: web.Request) -> int:
    text = request.headers.get(CHECKSUM, "")
    try:
        if len(text) == 16:
            return int(text, 16)
    except ValueError:
        pass
    raise Refused(f"{CHECKSUM} has 16 hexadecimal digits, not {text[:40]!r}")


def _query(request: web.Request) -> str:
    return checked_name(request.match_info["query"], "id of a query")


def _place(request: web.Request) -> str:
    return f"{_query(request)}/{number(request.match_info['batch'], 'batch')}"
