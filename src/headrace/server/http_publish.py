"""Publishing to a stream over HTTP.

POST    /streams/{name}            entries: JSON lines, or an Arrow IPC stream
POST    /streams/{name}/head       HEAD moves
POST    /streams/{name}/publisher  take the publisher's lease, or keep it: who holds it publishes alone
DELETE  /streams/{name}/publisher  give it free
POST    /streams/{name}/ids        where entries with these unique ids are
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from aiohttp import web

from headrace.kernel.errors import BadSettings, Refused, SchemaMismatch, TooLarge
from headrace.server.http_errors import answer
from headrace.server.http_limits import HttpLimits
from headrace.server.http_numbers import number
from headrace.server.node import Node
from headrace.server.stream_desk import Check, StreamDesk, publishing
from headrace.stream.key_text import parse_key
from headrace.stream.publisher import Published, Publisher
from headrace.stream.stream import Stream
from headrace.stream.unique import plain_type
from headrace.wire.arrow_size import unpacked_bytes
from headrace.wire.http_words import ARROW, BASE, PRODUCER, PUBLISHER, SEQUENCE, STREAM
from headrace.wire.json_lines import read_lines

NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
NO_ARROW = (pa.ArrowException, OSError, UnicodeDecodeError, struct.error)
_ID_CHARACTERS_MAX = 128
T = TypeVar("T")


class Head(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST …/head: the key as text, or as its 64 sortable bits."""

    key: int | float | str | None = None
    bits: int | None = None


class Lease(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST and DELETE …/publisher."""

    id: str
    take_over: bool = False


class PublishRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/streams/{name}", self.publish),
            web.post("/streams/{name}/head", self.move_head),
            web.post("/streams/{name}/publisher", self.take),
            web.delete("/streams/{name}/publisher", self.release),
            web.post("/streams/{name}/ids", self.find_ids),
        ]

    async def publish(self, request: web.Request) -> web.Response:
        desk = await self._desk(request)
        once, at = _once(request), _base(request)
        body = await request.read()
        if request.content_type == ARROW:
            unpack = partial(published_table, body, self._node.limits)
        else:
            check_rows(body.count(b"\n"), self._node.limits)
            unpack = partial(_lines_table, body, desk.stream.schema)
        work = publishing(unpack, once, at)
        return answer(told(desk.counted(await desk.ask(work, len(body), _leased(request, desk)))))

    async def move_head(self, request: web.Request) -> web.Response:
        desk = await self._desk(request)
        wanted = decoded(await request.read(), Head, '{"key": …}')
        if (wanted.key is None) == (wanted.bits is None):
            raise Refused('the body is {"key": …}, or {"bits": …}, and not both')
        if wanted.bits is not None:
            key = desk.stream.key_of(number(str(wanted.bits), "bits", bits=64))
        else:
            key = parse_key(str(wanted.key), desk.stream)
        await desk.ask(lambda publisher: publisher.head(key), 0, _leased(request, desk))
        return answer({"head": wanted.bits if wanted.key is None else wanted.key})

    async def take(self, request: web.Request) -> web.Response:
        desk = await self._desk(request)
        wanted = _lease(await request.read())
        desk.lease.take(wanted.id, take_over=wanted.take_over)
        return answer({**await desk.ask(where), "lease_s": desk.lease.lease_s})

    async def release(self, request: web.Request) -> web.Response:
        desk = await self._desk(request)
        wanted = _lease(await request.read())
        desk.lease.release(wanted.id)
        return answer({"released": wanted.id})

    async def find_ids(self, request: web.Request) -> web.Response:
        desk = await self._desk(request)
        ids = await self._node.in_pool(_ids, await request.read(), self._node.limits, desk.stream)
        known = await desk.ask(lambda publisher: publisher.known_ids(ids))
        return answer({"indexes": [known.get(each) for each in ids]})

    async def _desk(self, request: web.Request) -> StreamDesk:
        return await self._node.stream(request.match_info["name"], request.headers.get(STREAM))


def _leased(request: web.Request, desk: StreamDesk) -> Check:
    """Checks that whoever asks holds the publisher's lease, or that nobody does."""
    return partial(desk.lease.check, request.headers.get(PUBLISHER))


def _lines_table(body: bytes, schema: pa.Schema) -> pa.Table:
    """The entries of a body that is JSON lines. Only a line feed ends a line: so they were counted."""
    return read_lines(body.split(b"\n"), schema, "stream")


def _ids(body: bytes, limits: HttpLimits, stream: Stream) -> list[Any]:
    """What is asked for, as the index of ids keeps it."""
    table = published_table(body, limits)
    unique_by = stream.log.meta.extra.get("stream", {}).get("unique_by")
    if unique_by is None:
        raise Refused(f"the stream {stream.name!r} has no unique ids")
    if table.num_columns != 1:
        raise SchemaMismatch(f"the body has one column, of ids, not {table.num_columns}")
    stored = stream.schema.field(unique_by).type
    kind, given = plain_type(stored), table.column(0).combine_chunks()
    try:
        if given.type == stored:
            return given.view(kind).to_pylist()  # type: ignore[no-any-return]
        ids: list[Any] = given.cast(kind).to_pylist()
    except pa.ArrowException as error:
        raise SchemaMismatch(f"ids of the stream {stream.name!r} are {kind}: {error}") from error
    return ids


def told(published: Published) -> dict[str, Any]:
    """What a publisher is answered."""
    return {
        "first": published.base_index,
        "next": published.next_index,
        "duplicates": list(published.duplicates),
        "repeated": published.repeated,
    }


def where(publisher: Publisher) -> dict[str, Any]:
    """What a publisher elsewhere has to know to go on from here."""
    return {
        "next": publisher.next_index,
        "durable": publisher.durable_index,
        "head": publisher.head_key,
        "last": publisher.last_key,
    }


def _lease(body: bytes) -> Lease:
    wanted = decoded(body, Lease, '{"id": "…"}')
    if not 0 < len(wanted.id) <= _ID_CHARACTERS_MAX:
        raise Refused(f"the id of a publisher has 1 to {_ID_CHARACTERS_MAX} characters")
    return wanted


def decoded(body: bytes, kind: type[T], shape: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except NO_JSON as error:
        raise Refused(f"the body is not {shape}: {error}") from error


def published_table(body: bytes | memoryview, limits: HttpLimits) -> pa.Table:
    """The entries of a body that is Arrow."""
    table = arrow_table(body, limits.body_bytes)
    check_rows(table.num_rows, limits)
    return table


def check_rows(rows: int, limits: HttpLimits) -> None:
    if rows > limits.rows:
        raise TooLarge(f"the body has {rows} entries; {limits.rows} are allowed: send fewer")


def check_unpacked(size: int, most: int) -> None:
    if size > most:
        raise TooLarge(f"unpacked, the body has {size} bytes; {most} are allowed")


def arrow_table(body: bytes | memoryview, most: int) -> pa.Table:
    try:
        check_unpacked(unpacked_bytes(body), most)
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
        check_names(table.schema)
        check_plain(table.schema)
    except NO_ARROW as error:
        raise SchemaMismatch(f"the body is no Arrow IPC stream: {error}") from error
    return table


def check_names(schema: pa.Schema) -> pa.Schema:
    for name in schema.names:
        if not name or not name.isprintable():
            raise SchemaMismatch(f"{name!r} is no name of a field: it has to be text that can be printed")
    return schema


def check_plain(schema: pa.Schema) -> None:
    """Refuse columns that say in a few bytes what they hold often: unpacked they would have any size."""
    for field in schema:
        if _says_once(field.type):
            raise SchemaMismatch(f"the column {field.name!r} is {field.type}: send its values one by one")


def _says_once(kind: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_dictionary(kind)
        or types.is_run_end_encoded(kind)
        or types.is_string_view(kind)
        or types.is_binary_view(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
        or any(_says_once(kind.field(at).type) for at in range(kind.num_fields))
    )


def _once(request: web.Request) -> tuple[str, int] | None:
    """Headers that make publishing safe to repeat."""
    producer, sequence = request.headers.get(PRODUCER), request.headers.get(SEQUENCE)
    if producer is None and sequence is None:
        return None
    if not producer or sequence is None:
        raise BadSettings(f"{PRODUCER} and {SEQUENCE} go together: give both, or none")
    return producer, number(sequence, SEQUENCE)


def _base(request: web.Request) -> int | None:
    text = request.headers.get(BASE)
    return None if text is None else number(text, BASE)
