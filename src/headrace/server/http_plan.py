"""Reading a stream in parts over HTTP: where a key is, and how to cut a stretch so that many read it at once.

GET  /streams/{name}/seek?key=…|bits=…          the first index whose order key is at least this
GET  /streams/{name}/plan?from=…&to=…[&rows=…][&cores=…]    indexes at which to cut, the ends included

Each part is then read by itself (`http_read`).
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from headrace.kernel.errors import Refused
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.plan import plan_spans
from headrace.server.http_errors import answer
from headrace.server.http_numbers import number
from headrace.server.node import Node
from headrace.stream.key_text import parse_key

_PARTS_MAX = 100_000
_CORES_MAX = 4096


class PlanRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/streams/{name}/seek", self.seek),
            web.get("/streams/{name}/plan", self.plan),
        ]

    async def seek(self, request: web.Request) -> web.Response:
        desk = await self._node.stream(request.match_info["name"])
        query = request.query
        if ("key" in query) == ("bits" in query):
            raise Refused("give either `key` or `bits`")
        if "bits" in query:
            bits = number(query["bits"], "bits", bits=64)
            return answer({"index": await self._node.in_pool(desk.stream.log.seek_sortable, bits)})
        key = parse_key(query["key"], desk.stream)
        return answer({"index": await self._node.in_pool(desk.stream.log.seek_key, key)})

    async def plan(self, request: web.Request) -> web.Response:
        desk = await self._node.stream(request.match_info["name"])
        return answer({"cuts": await self._node.in_pool(cuts_of, desk.stream.log, request.query)})


def cuts_of(log: Log, query: Mapping[str, str]) -> list[int]:
    """The plan that a query asks for."""
    for name in ("from", "to"):
        if name not in query:
            raise Refused(f"give `{name}`: a plan has two ends")
    start, stop = number(query["from"], "from"), number(query["to"], "to")
    rows = number(query["rows"], "rows") if "rows" in query else None
    cores = number(query["cores"], "cores") if "cores" in query else None
    if stop > log.next_index:
        raise Refused(f"it ends at index {log.next_index}, before {stop}")
    if rows == 0 or cores == 0 or (cores or 1) > _CORES_MAX:
        raise Refused(f"rows is from 1 on, and cores from 1 to {_CORES_MAX}")
    if rows is not None and (stop - start) // rows > _PARTS_MAX:
        raise Refused(f"{stop - start} entries in parts of {rows}: at most {_PARTS_MAX} parts are planned")
    spans = plan_spans(Disk(), log.path, log.meta, start, stop, rows, cores=cores)
    return [*(span.start for span in spans), spans[-1].stop] if spans else []
