"""Named positions over HTTP: where readers elsewhere are, which retention waits for.

POST    /streams/{name}/positions/{position}   take it, or keep it; and remember an index, if one is given
DELETE  /streams/{name}/positions/{position}   let another reader have it; the index stays

The body is {"id": "…", "index": 5}: `id` is the reader's own, made up by it.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from headrace.kernel.errors import Refused, TooLarge
from headrace.kernel.names import checked_name
from headrace.log.disk import Disk
from headrace.log.positions import PositionFile, read_positions
from headrace.server.http_errors import answer
from headrace.server.http_publish import decoded
from headrace.server.node import Node
from headrace.server.position_leases import PositionLeases
from headrace.stream.stream import Stream

_POSITIONS_MAX = 1024
_ID_CHARACTERS_MAX = 128


class PositionReader(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    index: int | None = None


class PositionRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._leases = PositionLeases(lambda: asyncio.get_running_loop().time())

    def routes(self) -> list[web.RouteDef]:
        path = "/streams/{name}/positions/{position}"
        return [web.post(path, self.save), web.delete(path, self.release)]

    async def save(self, request: web.Request) -> web.Response:
        desk, position = await self._node.stream(request.match_info["name"]), _position(request)
        reader = _reader(await request.read())
        self._leases.take(desk.stream.name, position, reader.id)
        index = await self._node.in_pool(_saved, desk.stream, position, reader.index)
        return answer({"position": position, "index": index})

    async def release(self, request: web.Request) -> web.Response:
        desk, position = await self._node.stream(request.match_info["name"]), _position(request)
        self._leases.release(desk.stream.name, position, _reader(await request.read()).id)
        return answer({"released": position})


def _position(request: web.Request) -> str:
    return checked_name(request.match_info["position"], "position name")


def _reader(body: bytes) -> PositionReader:
    reader = decoded(body, PositionReader, '{"id": "…", "index": 5}')
    if not 0 < len(reader.id) <= _ID_CHARACTERS_MAX:
        raise Refused(f"the id of a reader has 1 to {_ID_CHARACTERS_MAX} characters")
    if reader.index is not None and not 0 <= reader.index < 1 << 63:
        raise Refused(f"index is a whole number from 0 on, not {reader.index}")
    return reader


def _saved(stream: Stream, position: str, index: int | None) -> int:
    """The file is open for this moment only: a stream that is dropped meanwhile is not held by it."""
    disk, directory = Disk(), stream.log.path
    known = read_positions(disk, directory)
    if position not in known and len(known) >= _POSITIONS_MAX:
        raise TooLarge(f"stream {stream.name!r} has {len(known)} positions: no more are allowed")
    if index is None and position in known:
        return known[position]
    file = PositionFile.open(disk, directory, position)
    try:
        if index is not None:
            file.save(index)
        return file.index
    finally:
        file.close()
