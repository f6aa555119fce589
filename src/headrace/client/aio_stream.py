"""A stream on a node, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from headrace.client.aio_publisher import AsyncPublisher
from headrace.client.carrier import Carrier
from headrace.client.conduits import Conduits
from headrace.client.feed import Feed, place_query, tell
from headrace.client.loop_conduit import LoopConduits
from headrace.client.node_line import NodeLine, path_of
from headrace.client.verified import verified
from headrace.kernel.errors import KeyOrder
from headrace.log.body import BodyDecoder
from headrace.log.cursor import OnDamage
from headrace.log.damage import Damage, Report
from headrace.log.info import LogInfo
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta, decode_meta
from headrace.log.segment_reader import Batch
from headrace.log.segment_reader import Head as LogHead
from headrace.log.verify import Progress
from headrace.stream.agreement import Terms
from headrace.stream.declaration import Declaration
from headrace.stream.entry import Entry, EntryMaker, Head, OnUnknown
from headrace.stream.evolve import check_evolution
from headrace.stream.places import START, Place, check_count
from headrace.wire import http_words as words


class AsyncStream:
    def __init__(self, line: NodeLine, name: str, declaration: Declaration, meta: Meta) -> None:
        """Use `AsyncStore.stream`."""
        self.name = name
        self.line = line
        self.declaration = declaration
        self.meta = meta
        self.schema = check_evolution(meta, declaration, name)
        """The columns that listeners get: what is stored, and what is declared and not stored yet."""
        self._key = KeyColumn(meta.schema, meta.order_by) if meta.order_by else None

    # --- publishing

    async def publisher(self, *, take_over: bool = False, shared: bool = False) -> AsyncPublisher:
        """The stream's one publisher, or PublisherTaken; `shared`: one of several (see `hr.connect`)."""
        carrier = await self.carrier(LoopConduits(self.line), take_over=take_over, shared=shared)
        return AsyncPublisher(carrier, self.declaration)

    async def carrier(self, conduits: Conduits, *, take_over: bool, shared: bool) -> Carrier:
        """What brings batches there over such conduits, once the stream has all that is declared."""
        carrier = Carrier(self.line, conduits, self.name, self.meta, shared=shared)
        await carrier.take(take_over=take_over)
        try:
            await self.refresh()
            grown = Terms.grown(self.meta, self.declaration, self.name)
            if grown is not None:
                await carrier.grow(grown)
                await self.refresh()
        except BaseException:
            await carrier.release()
            raise
        carrier.meta = self.meta
        return carrier

    async def refresh(self) -> None:
        """See the stream's schema as it is now."""
        path = path_of("streams", self.name, "meta")
        raw = await self.line.surely(lambda: self.line.ask("GET", path, headers=self._which))
        self.meta = decode_meta(raw, f"the meta of {self.name!r}")
        self.schema = check_evolution(self.meta, self.declaration, self.name)

    # --- listening

    async def listen(
        self,
        start: Place = START,
        *,
        until: Place = None,
        count: int | None = None,
        follow: bool = False,
        on_unknown: OnUnknown = "error",
        on_damage: OnDamage | None = None,
    ) -> AsyncIterator[Entry]:
        """The entries from `start`: until a place, so many of them, or for ever with `follow`."""
        check_count(count)
        maker, left = EntryMaker(self.declaration, on_unknown), count
        if left == 0:
            return
        async for item in self._items(self.feed(start, until, follow=follow), on_damage):
            if isinstance(item, Batch):
                for entry in maker.entries(item):
                    yield entry
                    if left is not None:
                        left -= 1
                        if left == 0:
                            return

    async def listen_batches(
        self,
        start: Place = START,
        *,
        until: Place = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        on_damage: OnDamage | None = None,
    ) -> AsyncIterator[Batch]:
        """The same as Arrow record batches, of all columns or some."""
        async for item in self._items(self.feed(start, until, follow=follow, columns=columns), on_damage):
            if isinstance(item, Batch):
                yield item

    async def listen_with_heads(
        self, start: Place = START, *, until: Place = None, follow: bool = False
    ) -> AsyncIterator[Entry | Head]:
        """The entries, and between them each move of HEAD."""
        maker = EntryMaker(self.declaration)
        async for item in self._items(self.feed(start, until, follow=follow), None):
            if isinstance(item, Batch):
                for entry in maker.entries(item):
                    yield entry
            else:
                yield Head(self.key_of(item.key), item.next_index)

    def feed(
        self,
        start: Place,
        until: Place,
        *,
        follow: bool,
        columns: Sequence[str] | None = None,
        conduits: Conduits | None = None,
    ) -> Feed:
        """Where batches come from: over conduits of this loop, if no others are given."""
        schema = self.schema if columns is None else BodyDecoder(self.schema, columns).schema
        query = place_query(start, until, columns, self._bits)
        return Feed(
            self.line,
            conduits or LoopConduits(self.line),
            self.name,
            schema,
            query,
            follow=follow,
            id=self.meta.id,
        )

    async def _items(self, feed: Feed, on_damage: OnDamage | None) -> AsyncIterator[Batch | LogHead]:
        try:
            await feed.begin()
            while items := await feed.more():
                for item in items:
                    if isinstance(item, Damage):
                        tell(item, self.where, on_damage)
                    else:
                        yield item
        finally:
            feed.close()

    # --- what it knows of itself

    @property
    def where(self) -> str:
        return self.line.url + path_of("streams", self.name)

    @property
    def order_by(self) -> str | None:
        return self.meta.order_by

    def key_of(self, key: int) -> Any:
        """An order key from the 64 bits that sort the same."""
        return key if self._key is None else self._key.decode(key)

    async def next_index(self) -> int:
        return int((await self._told())["next"])

    async def durable_index(self) -> int:
        return int((await self._told())["durable"])

    async def head(self) -> Any:
        """HEAD as no power cut can take it back: no later entry has a smaller order key. None: not known."""
        key = int((await self._told())["head_bits"])
        return self.key_of(key) if key and self.order_by is not None else None

    async def verify(self, progress: Progress | None = None) -> Report:
        """Have the node read and check every byte of it; `progress` is told bytes done and in all."""
        return await self.line.surely(lambda: verified(self.line, self.name, self._which, progress))

    async def info(self) -> LogInfo:
        told = await self._told()
        return LogInfo(
            path=self.where,
            id=told["id"],
            schema=self.meta.schema,
            order_by=told["order_by"],
            settings=self.meta.settings,
            first_index=told["first"],
            next_index=told["next"],
            durable_index=told["durable"],
            epoch=told["epoch"],
            segments=told["segments"],
            bytes=told["bytes"],
            free_containers=told["free_containers"],
            positions=told["positions"],
            kept=told["kept"],
            foreign=told["foreign"],
        )

    async def _told(self) -> dict[str, Any]:
        path = path_of("streams", self.name, "info")
        told: dict[str, Any] = await self.line.surely(
            lambda: self.line.told("GET", path, headers=self._which)
        )
        return told

    @property
    def _which(self) -> dict[str, str]:
        """One that was dropped and made anew is another stream."""
        return {words.STREAM: self.meta.id}

    def _bits(self, key: Any) -> int:
        if self._key is not None:
            return self._key.encode(key)
        if not isinstance(key, int):
            raise KeyOrder(f"{self.name} is ordered by index, and {key!r} is none")
        return key
