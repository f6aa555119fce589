"""The feed of a node's stream: its batches and HEADs in order, over as many connections as it takes.

A feed is one conduit (`client.conduits`) on which the node goes on sending. If it breaks, the feed comes
again where it was: what `start`, `end` and keys stood for was told by the first answer, so that they mean the
same for ever. A line that says nothing for too long may be dead, and is left for another. Only so much is
read ahead as fits into a socket's buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
import pyarrow as pa

from headrace.client.conduits import Conduit, Conduits
from headrace.client.errors import ConnectionLost, NoAnswer
from headrace.client.node_line import AWAY, Absence, NodeLine, path_of
from headrace.kernel.errors import Closed, HeadraceError
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
        conduits: Conduits,
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
        self._conduits = conduits
        self._id = id
        self._name = name
        self._schema = schema
        self._one_class = TAG not in schema.names and "columns" not in query
        self._query = {**query, "damage": "skip"} | ({"follow": "true"} if follow else {})
        self._follow = follow
        self._head = -1
        self.conduit: Conduit | None = None
        """What it comes on just now."""
        self._pieces = ArrowPieces()
        self._as_wanted = False
        """Whether what comes on this conduit has the very schema that the reader wants to see."""
        self._begun = False
        self._away = 0
        self._failure: HeadraceError | None = None
        self._closed = False

    async def begin(self) -> None:
        """Be at the place where it starts; errors of the place are raised here."""
        if self.conduit is None:
            self.conduit = await self._open()

    async def more(self) -> list[Item]:
        """What has come, at least one item; [] once it is over.

        One that follows waits for a node that is away, and ends when it is stopped. One that has an end
        raises then: nobody may take what it has got so far for all there is.
        """
        if self._failure is not None:
            raise self._failure
        while not self.done and not self._over:
            try:
                if self.conduit is None:
                    self.conduit = await self._open()
                items = await self._received(self.conduit)
                if items:
                    self._away = 0
                    return items
            except (ProtocolError, *AWAY) as error:
                if self._over:
                    break
                if self.conduit is None and not self._follow:
                    raise
                if isinstance(error, NoAnswer):  # a dead line, or nothing was published: ask again
                    self._away = 0
                await self._lost()
        self.close()
        if not self.done and not self._follow:
            raise Closed(f"the stream {self._name!r} was closed before all of it was read")
        return []

    def close(self) -> None:
        self._closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        conduit, self.conduit = self.conduit, None
        if conduit is not None:
            conduit.close()

    async def _open(self) -> Conduit:
        absence = Absence(self._line.patience)
        return await absence.surely(self._connect, self._conduits.rest, lambda: self._over)

    @property
    def _over(self) -> bool:
        """Whether nobody wants more of it."""
        return self._closed or self._conduits.stopped or self._line.closed

    async def _connect(self) -> Conduit:
        path = f"{path_of('streams', self._name)}?{urlencode(self._query)}"
        conduit = await self._conduits.open(path, words.FEED, {words.STREAM: self._id})
        self._pieces, self._as_wanted = ArrowPieces(), False
        self.known_next = int(conduit.headers[words.NEXT.lower()])
        if not self._begun:
            self._begun = True
            self.index = int(conduit.headers[words.FROM.lower()])
            if words.UNTIL.lower() in conduit.headers:
                self._query.pop("until", None)
                self._query["to"] = conduit.headers[words.UNTIL.lower()]
        return conduit

    async def _received(self, conduit: Conduit) -> list[Item]:
        """What is whole now of what has come. A large batch goes straight to where it belongs."""
        room = self._pieces.room
        if room is None:
            data = await conduit.receive()
            if data:
                return self._items(self._pieces.feed(data))
        elif size := await conduit.receive_into(room):
            return self._items(self._pieces.filled(size))
        await self._ended()
        return []

    async def _ended(self) -> None:
        """The response is over: so is the feed, unless it follows and the node did not say that it is."""
        if not self._pieces.ended:
            raise ConnectionLost(f"the connection to {self._line.url} broke")
        if self._follow:
            await self._lost()
        else:
            self.done = True

    def leave_line(self) -> None:
        """Come again from where it is, over another line."""
        self._disconnect()
        if self._begun:  # else it is not known yet where that is
            for name in ("key", "from_bits"):
                self._query.pop(name, None)
            self._query["from"] = self.index

    async def _lost(self) -> None:
        """The same; not at once, if that happens again and again."""
        self.leave_line()
        self._away += 1
        if self._away > 1:
            await self._conduits.rest(self._line.patience.pause.pause_s(self._away - 1))

    def _items(self, batches: list[tuple[pa.RecordBatch, Notes]]) -> list[Item]:
        if not self._as_wanted and batches:
            self._as_wanted = self._schema.equals(self._pieces.schema)
        items: list[Item] = []
        for records, notes in batches:
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
        if not self._as_wanted:
            if self._one_class:
                check_still_one_class(records)
            records = through(records, self._schema)
        first, last, time_us = notes[words.NOTE_FIRST], notes[words.NOTE_LAST], notes[words.NOTE_TIME]
        batch = Batch(index, records, int(first), int(last), int(time_us), int(notes[words.NOTE_EPOCH]))
        self.index = index + records.num_rows
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
