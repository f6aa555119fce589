"""The feed of a node's stream: its batches and HEADs in order, over as many connections as it takes.

The node answers one response that goes on. If it breaks, the feed comes again where it was: what `start`,
`end` and keys stood for was told by the first answer, so that they mean the same for ever. Only so much is
read ahead as fits into a socket's buffers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
import pyarrow as pa

from headrace.client.errors import ConnectionLost
from headrace.client.node_line import AWAY, NodeLine, path_of
from headrace.kernel.errors import HeadraceError
from headrace.log.cursor import OnDamage
from headrace.log.damage import Damage, DamagedEntries
from headrace.log.segment_reader import Batch, Head
from headrace.stream.evolve import check_still_one_class, through
from headrace.stream.places import AtKey, Bits, Place
from headrace.stream.record import TAG
from headrace.wire import http_words as words
from headrace.wire.arrow_pieces import ArrowPieces, Notes
from headrace.wire.errors import ProtocolError

Item = Batch | Head | Damage


class Feed:
    def __init__(
        self,
        line: NodeLine,
        name: str,
        schema: pa.Schema,
        query: dict[str, Any],
        *,
        follow: bool,
        id: str,  # noqa: A002
    ) -> None:
        """`schema` is what the reader wants to see: the stream may have grown since, or not yet.

        `id` is that of the stream: one that was dropped and made anew is not read on.
        """
        self.done = False
        self.index = 0
        """The next index it will answer."""
        self.known_next = 0
        """The stream's next index as it was last told: who is below it is behind."""
        self._line = line
        self._id = id
        self._name = name
        self._schema = schema
        self._one_class = TAG not in schema.names and "columns" not in query
        self._query = {**query, "format": "arrow", "damage": "skip"} | ({"follow": "true"} if follow else {})
        self._follow = follow
        self._head = -1
        self._stack: AsyncExitStack | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._pieces = ArrowPieces()
        self._begun = False
        self._away = 0
        self._failure: HeadraceError | None = None
        self._closed = False

    async def begin(self) -> None:
        """Be at the place where it starts; errors of the place are raised here."""
        if self._response is None:
            await self._line.surely(self._connect)

    async def more(self) -> list[Item]:
        """What has come, at least one item; [] once it is over."""
        if self._failure is not None:
            raise self._failure
        while not self.done and not self._closed:
            try:
                if self._response is None:
                    await self._line.surely(self._connect)
                assert self._response is not None
                chunk = await self._response.content.readany()
                items = self._items(chunk)
                if items:
                    self._away = 0
                    return items
                if not chunk:
                    await self._ended()
            except (aiohttp.ClientError, ConnectionError, ProtocolError, *AWAY) as error:
                if self._closed:
                    break
                if isinstance(error, TimeoutError):  # a dead line, or nothing was published: ask again
                    self._away = 0
                await self._lost()
        await self.close()
        return []

    async def close(self) -> None:
        self._closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        stack, self._stack, self._response = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    async def _connect(self) -> None:
        stack = AsyncExitStack()
        path = f"{path_of('streams', self._name)}?{urlencode(self._query)}"
        try:
            response = await stack.enter_async_context(self._line.reading(path, {words.STREAM: self._id}))
        except BaseException:
            await stack.aclose()
            raise
        self._stack, self._response, self._pieces = stack, response, ArrowPieces()
        self.known_next = int(response.headers[words.NEXT])
        if not self._begun:
            self._begun = True
            self.index = int(response.headers[words.FROM])
            if words.UNTIL in response.headers:
                self._query.pop("until", None)
                self._query["to"] = response.headers[words.UNTIL]

    async def _ended(self) -> None:
        """The response is over: so is the feed, unless it follows and the node did not say that it is."""
        if not self._pieces.ended:
            raise ConnectionLost(f"the connection to {self._line.url} broke")
        if self._follow:
            await self._lost()
        else:
            self.done = True

    async def _lost(self) -> None:
        """Come again from where it is; not at once, if that happens again and again."""
        await self._disconnect()
        for name in ("key", "from_bits"):
            self._query.pop(name, None)
        self._query["from"] = self.index
        self._away += 1
        if self._away > 1:
            await asyncio.sleep(self._line.patience.pause.pause_s(self._away - 1))

    def _items(self, chunk: bytes) -> list[Item]:
        items: list[Item] = []
        for records, notes in self._pieces.feed(chunk):
            try:
                item = self._item(records, notes)
            except HeadraceError as error:  # raised once those before it are taken
                self._failure = error
                break
            if item is not None:
                items.append(item)
        if self._failure is not None and not items:
            raise self._failure
        return items

    def _item(self, records: pa.RecordBatch, notes: Notes) -> Item | None:
        if words.NOTE_END in notes:
            self.done = True
            return None
        if words.NOTE_DAMAGE in notes:
            damage = msgspec.json.decode(notes[words.NOTE_DAMAGE], type=Damage)
            if damage.stop_lost is not None:
                self.index = max(self.index, damage.stop_lost)
            return damage
        index = int(notes[words.NOTE_INDEX])
        if words.NOTE_HEAD in notes:
            key = int(notes[words.NOTE_KEY])
            told, self._head = self._head, max(self._head, key)
            return Head(key, index) if key > told else None
        if self._one_class:
            check_still_one_class(records)
        names = (words.NOTE_FIRST, words.NOTE_LAST, words.NOTE_TIME, words.NOTE_EPOCH)
        batch = Batch(index, through(records, self._schema), *(int(notes[name]) for name in names))
        self.index = batch.next_index
        return batch


def tell(damage: Damage, where: str, on_damage: OnDamage | None) -> None:
    """Raise it, unless the reader wants to be told and to read on."""
    if on_damage is None:
        raise DamagedEntries(where, damage)
    on_damage(damage)


def place_query(
    start: Place, until: Place, columns: Sequence[str] | None, bits: Callable[[Any], int]
) -> dict[str, Any]:
    """The query for what lies between two places; `bits` makes sortable bits of a key."""
    query: dict[str, Any] = {}
    match start:
        case AtKey(key):
            query["from_bits"] = bits(key)
        case Bits(key):
            query["from_bits"] = key
        case _:
            query["from"] = "start" if start is None else start
    match until:
        case None:
            pass
        case AtKey(key):
            query["until_bits"] = bits(key)
        case Bits(key):
            query["until_bits"] = key
        case "end":
            query["until"] = "end"
        case _:
            query["to"] = until
    if columns is not None:
        query["columns"] = ",".join(columns)
    return query
