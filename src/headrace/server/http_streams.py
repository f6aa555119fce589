"""Streams over HTTP: each is an endpoint by its name. docs/guide/http.md shows it with curl.

GET     /streams               their names
PUT     /streams/{name}        make sure that it is there, with these fields
POST    /streams/{name}/grow   it has more fields, or classes, from now on
DELETE  /streams/{name}        remove it with all its entries
GET     /streams/{name}/info   what it knows of itself
GET     /streams/{name}/meta   what its log says of itself: for programs that know its format

Publishing is `http_publish`, reading is `http_read`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from aiohttp import web

from headrace.kernel.errors import SchemaMismatch
from headrace.log.meta import COPY_OF
from headrace.server.http_errors import answer
from headrace.server.http_gate import holder_of, may_create
from headrace.server.http_publish import NO_ARROW, NO_JSON, check_names
from headrace.server.node import Node
from headrace.stream.agreement import StreamConfig, Terms
from headrace.stream.stream import Stream
from headrace.wire.fields import describe_schema, parse_type
from headrace.wire.http_words import ARROW, PUBLISHER, STREAM, TERMS


class Fields(msgspec.Struct, forbid_unknown_fields=True):
    """The body of PUT."""

    fields: dict[str, str]
    order_by: str | None = None
    strict: bool = False
    unique_by: str | None = None


class StreamRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/streams", self.names),
            web.put("/streams/{name}", self.ensure),
            web.delete("/streams/{name}", self.drop),
            web.post("/streams/{name}/grow", self.grow),
            web.get("/streams/{name}/info", self.info),
            web.get("/streams/{name}/meta", self.meta),
        ]

    async def names(self, request: web.Request) -> web.Response:
        names = await self._node.in_pool(self._node.store.streams)
        return answer({"streams": holder_of(request).seen("streams", names)})

    async def ensure(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.read()
        if request.content_type == TERMS:
            created = await self._node.make_stream(name, _terms(body), may_change=may_create(request))
        else:
            config = StreamConfig(_arrow_schema(body)) if request.content_type == ARROW else _config(body)
            created = await self._node.ensure_stream(name, config, may_change=may_create(request))
        return answer({"name": name, "created": created}, 201 if created else 200)

    async def grow(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        who = request.headers.get(PUBLISHER)
        await self._node.grow_stream(name, _terms(await request.read()), who)
        return answer({"name": name, "grown": True})

    async def drop(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await self._node.drop_stream(name)
        return answer({"name": name, "dropped": True})

    async def info(self, request: web.Request) -> web.Response:
        desk = await self._node.present_stream(request.match_info["name"], request.headers.get(STREAM))
        stream = desk.stream
        info = await self._node.in_pool(stream.info)
        settled = stream.log.settled
        return answer(
            {
                "name": stream.name,
                "fields": describe_schema(stream.schema),
                "order_by": stream.order_by,
                "first": info.first_index,
                "next": info.next_index,
                "durable": info.durable_index,
                "settled": settled.next_index,
                "head_bits": settled.head_key,
                "segments": info.segments,
                "bytes": info.bytes,
                "free_containers": info.free_containers,
                "epoch": info.epoch,
                "positions": info.positions,
                "kept": info.kept,
                "foreign": info.foreign,
                "id": info.id,
                "copy_of": self._origin(stream),
            }
        )

    def _origin(self, stream: Stream) -> dict[str, Any] | None:
        """Where a copy comes from; and how it is doing, if this node keeps it."""
        origin: dict[str, Any] | None = stream.log.meta.extra.get(COPY_OF)
        replica = self._node.replicas.get(stream.name)
        if origin is None or replica is None:
            return origin
        return origin | {"phase": replica.phase, "lag": replica.lag, "error": replica.error}

    async def meta(self, request: web.Request) -> web.Response:
        desk = await self._node.present_stream(request.match_info["name"], request.headers.get(STREAM))
        return web.Response(body=desk.stream.log.meta.encode(), content_type="application/json")


def _config(body: bytes) -> StreamConfig:
    try:
        wanted = msgspec.json.decode(body, type=Fields)
    except NO_JSON as error:
        raise SchemaMismatch(
            f'the body is not {{"fields": {{"at": "int64"}}, "order_by": "at"}}: {error}'
        ) from error
    return StreamConfig(_schema_of(wanted), wanted.order_by, strict=wanted.strict, unique_by=wanted.unique_by)


def _terms(body: bytes) -> Terms:
    try:
        return msgspec.json.decode(body, type=Terms)
    except NO_JSON as error:
        raise SchemaMismatch(f"the body does not hold the terms of a stream: {error}") from error


def _schema_of(wanted: Fields) -> pa.Schema:
    try:
        fields = [
            pa.field(
                name, parse_type(kind.removesuffix(" not null")), nullable=not kind.endswith(" not null")
            )
            for name, kind in wanted.fields.items()
        ]
    except ValueError as error:
        raise SchemaMismatch(str(error)) from error
    return check_names(pa.schema(fields))


def _arrow_schema(body: bytes) -> pa.Schema:
    try:
        return check_names(pa.ipc.open_stream(body).schema)
    except NO_ARROW as error:
        raise SchemaMismatch(f"the body is no Arrow IPC stream: {error}") from error
