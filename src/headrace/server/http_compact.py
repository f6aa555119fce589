"""Compacting over HTTP: a new stream of those entries of another that somebody has chosen by their indexes.

POST  /streams/{name}/compact?into=…&head=…     the indexes as an Arrow IPC stream of one column `index`

The entries stay where they are: the node copies them from log to log. Reading the old stream and creating
the new one must both be allowed. The new stream appears as a whole.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from aiohttp import web

from headrace.kernel.errors import Busy, Refused, SchemaMismatch
from headrace.kernel.names import checked_name
from headrace.server.http_errors import answer
from headrace.server.http_gate import holder_of
from headrace.server.http_numbers import number
from headrace.server.http_publish import arrow_table
from headrace.server.node import Node
from headrace.server.permissions import Permission
from headrace.stream.compacting import chosen_entries, compacting_folder, make_stream
from headrace.stream.errors import StreamExists
from headrace.stream.staging import StagingArea
from headrace.stream.stream import Stream


class CompactRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/streams/{name}/compact", self.compact)]

    async def compact(self, request: web.Request) -> web.Response:
        desk, query = await self._node.stream(request.match_info["name"]), request.query
        into = checked_name(query.get("into", ""), "stream name")
        holder_of(request).check(Permission.CREATE, "streams", into)
        head = number(query.get("head", "0"), "head", bits=64)
        raw, most = await request.read(), request.client_max_size

        def work() -> int:
            self._check_new(into)
            return self._made(desk.stream, into, _indexes(arrow_table(raw, most), desk.stream), head)

        return answer({"name": into, "entries": await self._node.in_pool(work)}, 201)

    def _check_new(self, into: str) -> None:
        names = self._node.store.streams()
        if into in names:
            raise StreamExists(f"there is a stream {into!r} already: choose another name")
        if len(names) >= self._node.limits.streams:
            raise Busy(f"there are {len(names)} streams, which is as many as may be: drop some")

    def _made(self, stream: Stream, into: str, indexes: pa.Array, head: int) -> int:
        log, area = stream.log, StagingArea.of(self._node.store.path, stream.name)
        with compacting_folder(area) as folder:
            span = (indexes[0].as_py(), indexes[-1].as_py() + 1) if len(indexes) else (0, 0)
            records = chosen_entries(stream.listen_batches(span[0], until=span[1]), indexes)
            return make_stream(log.path.with_name(into), log.meta, folder, records, head)


def _indexes(table: pa.Table, stream: Stream) -> pa.Array:
    if table.schema != pa.schema([pa.field("index", pa.int64())]):
        raise SchemaMismatch("indexes are one column `index` of int64")
    column = table.column("index")
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    rising = pc.all(pc.greater(whole.slice(1), whole.slice(0, max(0, len(whole) - 1)))).as_py()
    if whole.null_count or rising is False:
        raise Refused("indexes rise from one to the next")
    first, end = stream.log.first_index, stream.log.settled.next_index
    if len(whole) and not (first <= whole[0].as_py() and whole[-1].as_py() < end):
        raise Refused(f"indexes are those of entries that are there: {first} up to {end - 1}")
    return whole
