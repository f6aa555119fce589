"""The values of a journal over HTTP.

POST  /journals/{name}/set     {"key": "visits", "value": 5, "ttl": "1d"}
POST  /journals/{name}/get     {"key": "visits"}; probe, delete, add, flip, resize, lock, unlock, rename, link
POST  /journals/{name}/range   {"low": "a", "high": "b"}, in pages: {"values": […], "cursor": …}; match
POST  /journals/{name}/listen  {"key": "visits"}: a response that goes on, with a JSON line for each change

An owner of a lock is a text, and belongs to the client that says it (`Headrace-Session`).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
from aiohttp import web

from headrace.journal import checks
from headrace.journal import requests as ask
from headrace.journal.errors import BadRequest
from headrace.journal.journal import Journal
from headrace.journal.scan import PAGE, Cursor, check_pattern, decode_cursor
from headrace.journal.spelling import SpelledValue, Text, read, read_text, spell, spell_type
from headrace.journal.value import Type, Value
from headrace.server.journal_verbs import VerbRoutes, asked, journal_of, owned, path_of, verb
from headrace.server.node import Node
from headrace.wire.http_words import JSON_LINES

_PAGE_BYTES = 4 << 20
_BEAT_S = 15.0
"""A line without anything tells that often that the other side is there."""
_CHANGES_MAX = 1000
"""So many may wait for a peer that does not read: then it has to come again."""


def _set(journal: Journal, wanted: ask.Set, owner: object) -> object:
    written = journal.set(
        read_text(wanted.key),
        read(wanted.value),
        ttl=wanted.ttl,
        persist=wanted.persist,
        overwrite=wanted.overwrite,
        timestamp_us=wanted.timestamp_us,
        owner=owner,
    )
    return {"written": written}


def _get(journal: Journal, wanted: ask.Get) -> object:
    return _known(journal.get(read_text(wanted.key), lease=wanted.lease, touch=wanted.touch))


def _probe(journal: Journal, wanted: ask.Probe) -> object:
    return _known(journal.probe(read_text(wanted.key)))


def _delete(journal: Journal, wanted: ask.Delete, owner: object) -> object:
    key, stamp = read_text(wanted.key), wanted.timestamp_us
    return {"deleted": journal.delete(key, now=wanted.now, timestamp_us=stamp, owner=owner)}


def _add(journal: Journal, wanted: ask.Add, owner: object) -> object:
    number = read(wanted.number)
    if not isinstance(number, int | float):
        raise BadRequest(f"a number is added, not {number!r}")
    return {"value": spell(journal.add(read_text(wanted.key), number, owner=owner))}


def _flip(journal: Journal, wanted: ask.Flip, owner: object) -> object:
    return {"value": journal.flip(read_text(wanted.key), owner=owner)}


def _resize(journal: Journal, wanted: ask.Resize, owner: object) -> object:
    journal.resize(read_text(wanted.key), wanted.size, owner=owner)
    return {}


def _lock(journal: Journal, wanted: ask.Lock, owner: object) -> object:
    journal.lock(read_text(wanted.key), owner, wanted.until)
    return {}


def _unlock(journal: Journal, wanted: ask.Unlock, owner: object) -> object:
    journal.unlock(read_text(wanted.key), owner)
    return {}


def _rename(journal: Journal, wanted: ask.Rename, owner: object) -> object:
    journal.rename(read_text(wanted.key), read_text(wanted.other), owner=owner)
    return {}


def _link(journal: Journal, wanted: ask.Link, owner: object) -> object:
    journal.link(read_text(wanted.key), read_text(wanted.other), owner=owner)
    return {}


def _range(journal: Journal, wanted: ask.Range) -> object:
    low, high = (
        read_text(wanted.low),
        None if wanted.high is None else checks.key_bytes(read_text(wanted.high)),
    )
    begin = Cursor(None, checks.key_bytes(low) if low else b"", high, None)
    return _page(journal, begin, wanted.cursor, wanted.count)


def _match(journal: Journal, wanted: ask.Match) -> object:
    pattern = checks.pattern_bytes(read_text(wanted.pattern))
    check_pattern(pattern)
    return _page(journal, Cursor(None, b"", None, pattern), wanted.cursor, wanted.count)


VERBS = (
    owned(ask.Set, _set),
    verb(ask.Get, _get),
    verb(ask.Probe, _probe),
    owned(ask.Delete, _delete),
    owned(ask.Add, _add),
    owned(ask.Flip, _flip),
    owned(ask.Resize, _resize),
    owned(ask.Lock, _lock),
    owned(ask.Unlock, _unlock),
    owned(ask.Rename, _rename),
    owned(ask.Link, _link),
    verb(ask.Range, _range),
    verb(ask.Match, _match),
)


class ValueRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [*VerbRoutes(self._node, VERBS).routes(), web.post(path_of(ask.Listen), self.listen)]

    async def listen(self, request: web.Request) -> web.StreamResponse:
        """The type as it is, then each type that the value gets; "void" when it is gone."""
        wanted, journal = await asked(request, ask.Listen), await journal_of(self._node, request)
        response = web.StreamResponse(headers={"Content-Type": JSON_LINES})
        async with self._changes(journal, read_text(wanted.key)) as changes:
            value = await self._node.in_pool(journal.probe, read_text(wanted.key))
            await response.prepare(request)
            with suppress(ConnectionError):  # the listener has gone
                await response.write(_line(wanted.key, Type.VOID if value is None else value.type))
                while not self._node.stopping and changes.qsize() < _CHANGES_MAX:
                    try:
                        kind = await asyncio.wait_for(changes.get(), _BEAT_S)
                    except TimeoutError:
                        await response.write(b"\n")
                        continue
                    if kind is None:
                        break
                    await response.write(_line(wanted.key, kind))
                await response.write_eof()
        return response

    @asynccontextmanager
    async def _changes(self, journal: Journal, key: str) -> AsyncIterator[asyncio.Queue[Type | None]]:
        """What the value becomes; None when the node stops."""
        changes: asyncio.Queue[Type | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def told(key: str, kind: Type) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody listens any more
                loop.call_soon_threadsafe(changes.put_nowait, kind)

        def end() -> None:
            changes.put_nowait(None)

        stop = journal.listen(key, told)
        self._node.endings.add(end)
        try:
            yield changes
        finally:
            self._node.endings.discard(end)
            stop()


def _known(value: Value | None) -> object:
    return {"value": None if value is None else SpelledValue.of(value)}


def _page(journal: Journal, begin: Cursor, cursor: str | None, count: int | None) -> object:
    if count is not None:
        checks.count(count, "how many")
    try:
        at = begin if cursor is None else decode_cursor(base64.b64decode(cursor, validate=True))
    except (binascii.Error, ValueError) as error:
        raise BadRequest("this is no cursor of a journal: begin the read again") from error
    if count == 0:
        return {"values": [], "cursor": None}
    values, following = journal.page(at, PAGE if count is None else min(count, PAGE), _PAGE_BYTES)
    said = None if following is None else base64.b64encode(msgspec.msgpack.encode(following)).decode()
    return {"values": [SpelledValue.of(value) for value in values], "cursor": said}


def _line(key: Text, kind: Type) -> bytes:
    return msgspec.json.encode({"key": key, "type": spell_type(kind)}) + b"\n"
