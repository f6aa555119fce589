"""The history of a journal over HTTP: every change that its log still has, for programs that read much.

GET  /journals/{name}/history/reach                   which log it is, its first index, and where it ends
GET  /journals/{name}/history/plan?from=…&to=…[&rows=…][&cores=…]     indexes at which to cut
GET  /journals/{name}/history?from=…&to=…[&columns=kind,key]          some of it, as an Arrow IPC stream

An answer has some megabytes at most: beside each batch stand its index and its epoch, and who wants more
asks again from there. What is a second old or less may not be in the log yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from aiohttp import web

from headrace.journal.events import SCHEMA
from headrace.kernel.errors import Refused
from headrace.log.log import Log
from headrace.server.http_errors import answer
from headrace.server.http_numbers import number
from headrace.server.http_plan import cuts_of
from headrace.server.node import Node
from headrace.wire.http_words import ARROW, NOTE_EPOCH, NOTE_INDEX

_PART_BYTES = 8 << 20


class HistoryRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        path = "/journals/{name}/history"
        return [
            web.get(path, self.read, allow_head=False),
            web.get(f"{path}/reach", self.reach),
            web.get(f"{path}/plan", self.plan),
        ]

    async def reach(self, request: web.Request) -> web.Response:
        return answer(await self._node.in_pool(_reach, await self._log_of(request)))

    async def plan(self, request: web.Request) -> web.Response:
        place, query = await self._log_of(request), request.query
        return answer({"cuts": await self._node.in_pool(_cuts, place, query)})

    async def read(self, request: web.Request) -> web.Response:
        place, query = await self._log_of(request), request.query
        if "from" not in query or "to" not in query:
            raise Refused("give `from` and `to`: a part of a history has two ends")
        start, stop = number(query["from"], "from"), number(query["to"], "to")
        columns = query["columns"].split(",") if "columns" in query else SCHEMA.names
        if unknown := [name for name in columns if name not in SCHEMA.names]:
            raise Refused(f"there is no column {unknown[0][:40]!r}: there are {', '.join(SCHEMA.names)}")
        body = await self._node.in_pool(_part, place, start, stop, columns)
        return web.Response(body=body, content_type=ARROW)

    async def _log_of(self, request: web.Request) -> Path:
        return (await self._node.journal_source(request.match_info["name"])).log.path


def _reach(place: Path) -> dict[str, object]:
    with Log.open(place, read_only=True) as log:
        return {"id": log.meta.id, "first": log.first_index, "settled": log.settled.next_index}


def _cuts(place: Path, query: Mapping[str, str]) -> list[int]:
    with Log.open(place, read_only=True) as log:
        return cuts_of(log, query)


def _part(place: Path, start: int, stop: int, columns: Sequence[str]) -> bytes:
    """Entries from `start` on, in the order of the columns as they are stored."""
    names = [name for name in SCHEMA.names if name in columns]
    sink = pa.BufferOutputStream()
    with (
        Log.open(place, read_only=True) as log,
        pa.ipc.new_stream(sink, pa.schema([SCHEMA.field(name) for name in names])) as writer,
    ):
        size = 0
        for batch in log.read(start, stop, columns=names):
            part = batch.slice(start, stop)
            notes = {NOTE_INDEX: str(part.base_index).encode(), NOTE_EPOCH: str(part.epoch).encode()}
            writer.write_batch(part.records, notes)
            size += part.records.nbytes
            if size >= _PART_BYTES:
                break
    told: bytes = sink.getvalue().to_pybytes()
    return told
