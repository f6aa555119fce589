"""Reading a stream over HTTP: from a place on, as a response that goes on as entries arrive.

GET /streams/{name}?from=…&key=…&until=…&count=…&columns=…&follow=…&format=json|arrow

Programs that hold places in other forms say them as `to` (an index), `from_bits` and `until_bits` (order keys
as their 64 sortable bits), and read on over damage with `damage=skip`. With `Upgrade: headrace-feed` they get
the bytes of an Arrow response without HTTP's chunks around them, on a connection that ends with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from headrace.kernel.errors import HeadraceError, Refused
from headrace.log.damage import Damage
from headrace.server.follower import Follower, own_line
from headrace.server.http_chunks import ArrowChunks, JsonChunks, Pieces
from headrace.server.http_numbers import number
from headrace.server.node import Node
from headrace.server.stream_desk import StreamDesk
from headrace.stream.key_text import parse_key
from headrace.stream.places import END, START, Bits, Place, at_key
from headrace.stream.scan import Scan
from headrace.wire.http_words import ARROW, FEED, FROM, JSON_LINES, NEXT, STREAM, UNTIL

_PARAMETERS = {
    "from", "key", "from_bits", "until", "to", "until_bits", "count", "follow", "format", "columns", "damage"
}  # fmt: skip
_FOLLOW = {"true": True, "1": True, "yes": True, "": True, "false": False, "0": False, "no": False}


class ReadRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/streams/{name}", self.read, allow_head=False)]

    async def read(self, request: web.Request) -> web.StreamResponse:
        desk = await self._node.stream(request.match_info["name"], request.headers.get(STREAM))
        wanted = _Reading.of(request, desk)
        pieces, headers = await self._node.in_pool(_open, desk, wanted)
        response = _Raw(headers=headers) if wanted.raw else web.StreamResponse(headers=headers)
        desk.followers += 1
        step: asyncio.Future[list[bytes]] | None = None
        try:
            while not pieces.over:
                move = desk.next_move() if wanted.follow and not desk.ending else None
                step = asyncio.ensure_future(self._node.in_pool(pieces.step))
                made = await asyncio.shield(step)
                await _send(request, response, pieces, made)  # an error before this has a status of its own
                if wanted.follow:
                    desk.followed_to[request.protocol] = pieces.reached
                if not made and not pieces.over:
                    if move is None:
                        break
                    await (self._follow(request, desk, pieces) if wanted.whole else move.wait())
            await _send(request, response, pieces, [pieces.end()])
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
            desk.followed_to.pop(request.protocol, None)
            if step is None or step.done():
                pieces.close()
            else:  # a reader that has gone may have left a step under way in the pool: it ends first
                step.add_done_callback(partial(_close, pieces))
        return response

    async def _follow(self, request: web.Request, desk: StreamDesk, pieces: Pieces) -> None:
        """Let the stream's broadcast send what comes, until the reader has fallen behind or the desk ends."""
        if request.transport is None:
            raise ConnectionResetError
        transport, line = request.transport, own_line(request.transport) if desk.broadcast.few else None
        joining = asyncio.ensure_future(
            self._node.in_pool(desk.broadcast.join, pieces.reached, transport, line)
        )
        try:
            follower = await asyncio.shield(joining)
        except asyncio.CancelledError:  # the reader has gone: what it was to be leaves as soon as it is there
            joining.add_done_callback(partial(_leave, desk))
            raise
        if follower is None:
            return
        try:
            if desk.ending:  # since before it joined: nobody would tell it
                return
            pieces.close()
            desk.followed_to.pop(request.protocol, None)
            await follower.gone.wait()
        finally:
            desk.broadcast.leave(follower)
            pieces.reached = follower.index
        await self._node.in_pool(pieces.go_on)


def _close(pieces: Pieces, done: asyncio.Future[list[bytes]]) -> None:
    """The last step of a reader that has gone is over: nobody is told how."""
    if not done.cancelled():
        done.exception()
    pieces.close()


def _leave(desk: StreamDesk, joined: asyncio.Future[Follower | None]) -> None:
    if not joined.cancelled() and joined.exception() is None and (follower := joined.result()) is not None:
        desk.broadcast.leave(follower)


class _Raw(web.StreamResponse):
    """What follows the headers goes as it is, and the connection ends with it."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(status=101, headers={**headers, "Connection": "Upgrade", "Upgrade": FEED})
        self.force_close()


async def _send(
    request: web.Request, response: web.StreamResponse, pieces: Pieces, chunks: list[bytes]
) -> None:
    if not response.prepared:
        await response.prepare(request)
        chunks = [pieces.begin(), *chunks]
    for chunk in chunks:
        if chunk:
            await response.write(chunk)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a reader asks for, in the query."""

    start: Place
    until: Place
    count: int | None
    columns: list[str] | None
    follow: bool
    arrow: bool
    skip_damage: bool
    raw: bool

    @property
    def whole(self) -> bool:
        """Whether it gets just the bytes that all others get who follow the stream."""
        return self.raw and self.until is None and self.count is None and self.columns is None

    @classmethod
    def of(cls, request: web.Request, desk: StreamDesk) -> _Reading:
        query = request.query
        if unknown := sorted(set(query) - _PARAMETERS):
            raise Refused(
                f"there is no parameter {unknown[0][:40]!r}: there are {', '.join(sorted(_PARAMETERS))}"
            )
        _one_of(query, "from", "key", "from_bits")
        _one_of(query, "until", "to", "until_bits")
        follow = _FOLLOW.get(query.get("follow", "false").lower())
        if follow is None:
            raise Refused(f"follow is true or false, not {query['follow'][:40]!r}")
        if query.get("damage", "skip") != "skip":
            raise Refused(f"damage is 'skip', or left out, not {query['damage'][:40]!r}")
        raw = request.headers.get("Upgrade", "").lower() == FEED
        arrow = raw or _format(request) == "arrow"
        return cls(
            _start(query, desk),
            _until(query, desk),
            number(query["count"], "count") if "count" in query else None,
            query["columns"].split(",") if "columns" in query else None,
            follow,
            arrow,
            "damage" in query,
            raw,
        )


def _one_of(query: Any, *names: str) -> None:
    if len(given := [name for name in names if name in query]) > 1:
        raise Refused(f"give either `{given[0]}` or `{given[1]}`, not both")


def _start(query: Any, desk: StreamDesk) -> Place:
    if "key" in query:
        return at_key(parse_key(query["key"], desk.stream))
    if "from_bits" in query:
        return Bits(number(query["from_bits"], "from_bits", bits=64))
    text = query.get("from", "start")
    return START if text == "start" else END if text == "end" else number(text, "from")


def _until(query: Any, desk: StreamDesk) -> Place:
    if "to" in query:
        return number(query["to"], "to")
    if "until_bits" in query:
        return Bits(number(query["until_bits"], "until_bits", bits=64))
    if "until" not in query:
        return None
    return END if query["until"] == "end" else at_key(parse_key(query["until"], desk.stream))


def _open(desk: StreamDesk, wanted: _Reading) -> tuple[Pieces, dict[str, str]]:
    """What is read, and what the answer says of it."""
    damage: list[Damage] = []

    def scan_from(start: Place) -> Scan:
        return Scan(
            desk.stream.log,
            desk.stream.schema,
            start,
            wanted.until,
            columns=wanted.columns,
            on_damage=damage.append if wanted.skip_damage else None,
        )

    scan = scan_from(wanted.start)
    headers = {FROM: str(scan.index), NEXT: str(desk.stream.next_index)}
    if scan.until is not None:
        headers[UNTIL] = str(scan.until)
    headers["Content-Type"] = ARROW if wanted.arrow else JSON_LINES
    chunks = ArrowChunks(desk.stream, scan.schema) if wanted.arrow else JsonChunks(desk.stream)
    return Pieces(scan, scan_from, chunks, damage, wanted.count), headers


def _format(request: web.Request) -> str:
    wanted = request.query.get("format") or (
        "arrow" if ARROW in request.headers.get("Accept", "") else "json"
    )
    if wanted not in ("json", "arrow"):
        raise Refused(f"format is json or arrow, not {wanted[:40]!r}")
    return wanted
