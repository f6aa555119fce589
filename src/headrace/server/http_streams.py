"""Streams over HTTP: each is an endpoint by its name. docs/guide/http.md shows it with curl.

PUT    /streams/{name}        make sure that it is there, with these fields
POST   /streams/{name}        publish: JSON lines, or an Arrow IPC stream
GET    /streams/{name}        read from a place on, and go on as entries arrive with follow
GET    /streams/{name}/info   what it knows of itself
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from aiohttp import web

from headrace.kernel.errors import BadSettings, HeadraceError, Refused, SchemaMismatch, TooLarge
from headrace.log.segment_reader import Batch
from headrace.server.http_chunks import ArrowChunks, JsonChunks
from headrace.server.http_errors import answer
from headrace.server.node import Node
from headrace.server.stream_desk import StreamDesk
from headrace.store import StreamConfig
from headrace.stream.key_text import parse_key
from headrace.stream.places import END, START, Place, at_key
from headrace.stream.scan import Scan
from headrace.wire.arrow_size import unpacked_bytes
from headrace.wire.fields import describe_schema, parse_type
from headrace.wire.json_lines import read_lines

ARROW = "application/vnd.apache.arrow.stream"
JSON_LINES = "application/x-ndjson"
_NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NO_ARROW = (pa.ArrowException, OSError, UnicodeDecodeError, struct.error)
_PARAMETERS = {"from", "key", "until", "count", "follow", "format", "columns"}
_FOLLOW = {"true": True, "1": True, "yes": True, "": True, "false": False, "0": False, "no": False}


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST …/head."""

    key: int | float | str


class _Fields(msgspec.Struct, forbid_unknown_fields=True):
    """The body of PUT."""

    fields: dict[str, str]
    order_by: str | None = None
    strict: bool = False
    unique_by: str | None = None


class StreamRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._steps: dict[Scan, asyncio.Future[Any]] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/streams", self.names),
            web.put("/streams/{name}", self.ensure),
            web.post("/streams/{name}", self.publish),
            web.get("/streams/{name}", self.read, allow_head=False),
            web.get("/streams/{name}/info", self.info),
            web.post("/streams/{name}/head", self.move_head),
        ]

    async def names(self, request: web.Request) -> web.Response:
        return answer({"streams": await self._node.in_pool(self._node.store.streams)})

    async def ensure(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await request.read()
        if request.content_type == ARROW:
            config = StreamConfig(_arrow_schema(body))
        else:
            try:
                wanted = msgspec.json.decode(body, type=_Fields)
            except _NO_JSON as error:
                raise SchemaMismatch(
                    f'the body is not {{"fields": {{"at": "int64"}}, "order_by": "at"}}: {error}'
                ) from error
            config = StreamConfig(
                _schema_of(wanted), wanted.order_by, strict=wanted.strict, unique_by=wanted.unique_by
            )
        created = await self._node.ensure_stream(name, config)
        return answer({"name": name, "created": created}, 201 if created else 200)

    async def publish(self, request: web.Request) -> web.Response:
        desk = await self._node.stream(request.match_info["name"])
        body = await request.read()
        if request.content_type == ARROW:
            table = await self._node.in_pool(_arrow_table, body, request.client_max_size)
        else:
            table = await self._node.in_pool(read_lines, body.splitlines(), desk.stream.schema, "stream")
        published = await desk.publish(table, _once(request))
        return answer(
            {
                "first": published.base_index,
                "next": published.next_index,
                "duplicates": list(published.duplicates),
                "repeated": published.repeated,
            }
        )

    async def info(self, request: web.Request) -> web.Response:
        desk = await self._node.stream(request.match_info["name"])
        info = await self._node.in_pool(desk.stream.info)
        return answer(
            {
                "name": desk.stream.name,
                "fields": describe_schema(desk.stream.schema),
                "order_by": desk.stream.order_by,
                "first": info.first_index,
                "next": info.next_index,
                "durable": info.durable_index,
                "segments": info.segments,
                "bytes": info.bytes,
            }
        )

    async def move_head(self, request: web.Request) -> web.Response:
        desk = await self._node.stream(request.match_info["name"])
        try:
            wanted = msgspec.json.decode(await request.read(), type=_Head)
        except _NO_JSON as error:
            raise Refused(f'the body is not {{"key": …}}: {error}') from error
        await desk.head(parse_key(str(wanted.key), desk.stream))
        return answer({"head": wanted.key})

    async def read(self, request: web.Request) -> web.StreamResponse:
        desk = await self._node.stream(request.match_info["name"])
        wanted = _Reading.of(request, desk)
        scan = await self._node.in_pool(_scan, desk, wanted)
        chunks = ArrowChunks(desk, scan.schema) if wanted.arrow else JsonChunks(desk)
        response = web.StreamResponse(headers={"Content-Type": ARROW if wanted.arrow else JSON_LINES})
        desk.followers += 1
        left = wanted.count
        try:
            async for item in self._items(desk, scan, wanted.follow):
                if isinstance(item, Batch) and left is not None:
                    item = item.slice(item.base_index, item.base_index + left)
                    left -= item.records.num_rows
                made = [] if item is None else await self._node.in_pool(chunks.chunks, item)
                if not response.prepared:  # an error before this has a status of its own
                    await response.prepare(request)
                for chunk in made:
                    await response.write(chunk)
                if left == 0:
                    break
            await response.write(chunks.end())
            await response.write_eof()
        except ConnectionError:
            pass  # the reader has gone
        except HeadraceError:
            if not response.prepared:
                raise
            if request.transport is not None:  # without its last chunk nobody takes it for the end
                request.transport.abort()
        finally:
            desk.followers -= 1
            self._close(scan)
        return response

    def _close(self, scan: Scan) -> None:
        """A reader that has gone may have left a step under way in the pool: it ends first."""
        step = self._steps.pop(scan, None)
        if step is None or step.done():
            scan.close()
        else:
            step.add_done_callback(lambda done: scan.close())

    async def _items(self, desk: StreamDesk, scan: Scan, follow: bool) -> AsyncIterator[Any]:
        """Batches and HEADs; None first of all, once the place to start at is known to be there."""
        begun = False
        while not scan.done:
            move = desk.next_move() if follow and not desk.ending else None
            step = asyncio.ensure_future(self._node.in_pool(scan.next))
            self._steps[scan] = step
            item = await asyncio.shield(step)
            if not begun:
                begun = True
                yield None
            if item is not None:
                yield item
            elif move is None or scan.done:
                return
            else:
                await move.wait()
        if not begun:
            yield None


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a reader asks for, in the query."""

    start: Place
    until: Place
    count: int | None
    columns: list[str] | None
    follow: bool
    arrow: bool

    @classmethod
    def of(cls, request: web.Request, desk: StreamDesk) -> _Reading:
        query = request.query
        if unknown := sorted(set(query) - _PARAMETERS):
            raise Refused(
                f"there is no parameter {unknown[0][:40]!r}: there are {', '.join(sorted(_PARAMETERS))}"
            )
        if "key" in query and "from" in query:
            raise Refused("give either `from` or `key`, not both")
        start = _place(query.get("from", "start"))
        if "key" in query:
            start = at_key(parse_key(query["key"], desk.stream))
        follow = _FOLLOW.get(query.get("follow", "false").lower())
        if follow is None:
            raise Refused(f"follow is true or false, not {query['follow'][:40]!r}")
        return cls(
            start,
            _until(query.get("until"), desk),
            _number(query["count"], "count") if "count" in query else None,
            query["columns"].split(",") if "columns" in query else None,
            follow,
            _format(request) == "arrow",
        )


def _scan(desk: StreamDesk, wanted: _Reading) -> Scan:
    return Scan(desk.stream.log, desk.stream.schema, wanted.start, wanted.until, columns=wanted.columns)


def _schema_of(wanted: _Fields) -> pa.Schema:
    try:
        fields = [
            pa.field(
                name, parse_type(kind.removesuffix(" not null")), nullable=not kind.endswith(" not null")
            )
            for name, kind in wanted.fields.items()
        ]
    except ValueError as error:
        raise SchemaMismatch(str(error)) from error
    return _checked_names(pa.schema(fields))


def _checked_names(schema: pa.Schema) -> pa.Schema:
    for name in schema.names:
        if not name or not name.isprintable():
            raise SchemaMismatch(f"{name!r} is no name of a field: it has to be text that can be printed")
    return schema


def _arrow_schema(body: bytes) -> pa.Schema:
    try:
        return _checked_names(pa.ipc.open_stream(body).schema)
    except _NO_ARROW as error:
        raise SchemaMismatch(f"the body is no Arrow IPC stream: {error}") from error


def _arrow_table(body: bytes, most: int) -> pa.Table:
    try:
        size = unpacked_bytes(body)
        if size > most:
            raise TooLarge(f"unpacked, the body has {size} bytes; {most} are allowed")
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
        _checked_names(table.schema)
    except _NO_ARROW as error:
        raise SchemaMismatch(f"the body is no Arrow IPC stream: {error}") from error
    return table


def _once(request: web.Request) -> tuple[str, int] | None:
    """Headers that make publishing safe to repeat."""
    producer, sequence = request.headers.get("Headrace-Producer"), request.headers.get("Headrace-Sequence")
    if producer is None and sequence is None:
        return None
    if not producer or sequence is None:
        raise BadSettings("Headrace-Producer and Headrace-Sequence go together: give both, or none")
    return producer, _number(sequence, "Headrace-Sequence")


def _place(text: str) -> Place:
    return START if text == "start" else END if text == "end" else _number(text, "from")


def _until(text: str | None, desk: StreamDesk) -> Place:
    if text is None:
        return None
    return END if text == "end" else at_key(parse_key(text, desk.stream))


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 1 << 63):
        raise Refused(f"{what} is a whole number from 0 on, not {text[:40]!r}")
    return int(text)


def _format(request: web.Request) -> str:
    wanted = request.query.get("format") or (
        "arrow" if ARROW in request.headers.get("Accept", "") else "json"
    )
    if wanted not in ("json", "arrow"):
        raise Refused(f"format is json or arrow, not {wanted[:40]!r}")
    return wanted
