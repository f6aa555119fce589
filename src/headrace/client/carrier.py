"""The carrier: brings batches to a node's stream, each once, whatever happens on the way.

Every batch has a number, and the node knows the last one of this carrier that it has on its disk. So a batch
whose answer did not arrive is sent again, and is answered, not published twice. If something else comes
instead, it is looked up whether that batch is there, before anything else is sent. A carrier that holds the
stream alone says besides which index its batch must get: nobody can have published in between. One of several
that share a stream does not know indexes; it counts its own entries instead.

What comes again and again goes through a pipe, on whatever conduits it is given: `append` and `head` wait for
nothing else than these.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any

import msgspec
import pyarrow as pa

from headrace.client.conduits import Conduits
from headrace.client.node_line import NodeLine, path_of
from headrace.client.packing import Packing, packed
from headrace.client.pipe import Pipe
from headrace.kernel.errors import Broken, HeadraceError, Refused
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.stream.agreement import Terms
from headrace.stream.publisher import Published
from headrace.wire import http_words as words
from headrace.wire.pipe import ANY, PipeRequest, Verb, key_body

_RENEWALS = 3
"""So often a lease is renewed before it ends."""


class Carrier:
    def __init__(self, line: NodeLine, conduits: Conduits, name: str, meta: Meta, *, shared: bool) -> None:
        self.id = uuid.uuid4().hex
        self.meta = meta
        self.next_index = 0
        self.head_key = 0
        self.last_key: int | None = None
        self.where = line.url + path_of("streams", name)
        self._line = line
        self._path = path_of("streams", name)
        self._key = KeyColumn(meta.schema, meta.order_by) if meta.order_by else None
        self._which = {words.STREAM: meta.id} | ({} if shared else {words.PUBLISHER: self.id})
        self._shared = shared
        self._pipe = Pipe(line, conduits, f"{self._path}/pipe", {**self._which, words.PRODUCER: self.id})
        self._packing = Packing(meta.schema)
        self._sequence = 0
        self._doubtful: pa.RecordBatch | pa.Table | None = None
        """The batch that may be there or not: it goes again as it was, or is looked up, before another."""
        self._renewing: asyncio.Task[None] | None = None

    async def take(self, *, take_over: bool = False) -> None:
        """Hold the stream alone, unless it is shared; PublisherTaken if somebody else does."""
        if self._shared:
            return
        wanted = {"id": self.id, "take_over": take_over}
        told = await self._line.surely(lambda: self._where(wanted))
        self.next_index, self.head_key, self.last_key = told["next"], told["head"], told["last"]
        self._renewing = asyncio.get_running_loop().create_task(self._renew(told["lease_s"] / _RENEWALS))

    async def grow(self, terms: Terms) -> None:
        """The stream has more fields, or classes, from now on."""
        body, path = msgspec.json.encode(terms), f"{self._path}/grow"
        await self._line.surely(
            lambda: self._line.ask("POST", path, body, media=words.TERMS, headers=self._which)
        )

    async def append(self, records: pa.RecordBatch | pa.Table) -> Published:
        """Bring entries there; answered when they are durable."""
        if self._doubtful is not None and not _begins(records, self._doubtful):
            await self._settle(self._doubtful)
        base, duplicates = self.next_index, list[int]()
        while rows := records.num_rows:
            again = self._doubtful is not None
            portion = records if self._doubtful is None else records.slice(0, self._doubtful.num_rows)
            self._doubtful = portion
            try:
                published = await self._publish(portion)
            except Refused:
                if not again and not self._pipe.in_doubt:  # else it may be there, though it is refused by now
                    self._doubtful = None
                raise
            self._doubtful = None
            self._sequence += 1
            duplicates += [row + self.next_index - base + len(duplicates) for row in published.duplicates]
            self._move(portion, published)
            records = records.slice(portion.num_rows, rows)
        return Published(base, self.next_index, tuple(duplicates))

    async def append_once(self, records: pa.RecordBatch | pa.Table, once: tuple[str, int]) -> Published:
        """The same under a number of the caller's own: what was published under it is not again."""
        headers = {**self._which, words.PRODUCER: once[0], words.SEQUENCE: str(once[1])}
        if not self._shared:
            headers[words.BASE] = str(self.next_index)
        body = packed(records)
        raw = await self._line.surely(
            lambda: self._line.ask("POST", self._path, body, media=words.ARROW, headers=headers)
        )
        published = _published(msgspec.json.decode(raw))
        if not published.repeated:
            self._move(records, published)
        return published

    async def head(self, key: Any) -> None:
        """Move HEAD."""
        if self._key is None:
            raise Refused(f"{self.where} is ordered by index: its HEAD moves by itself")
        bits = self._key.encode(key)
        await self._pipe.surely(PipeRequest(Verb.HEAD, body=key_body(bits)))
        self.head_key = max(self.head_key, bits)

    def key_of(self, bits: int) -> Any:
        assert self._key is not None
        return self._key.decode(bits)

    async def find_ids(self, ids: pa.Array) -> list[int | None]:
        """The index of the entry with each id; None if there is none."""
        body, path = packed(pa.RecordBatch.from_arrays([ids], names=["id"])), f"{self._path}/ids"
        raw = await self._line.surely(
            lambda: self._line.ask("POST", path, body, media=words.ARROW, headers=self._which)
        )
        found: list[int | None] = msgspec.json.decode(raw)["indexes"]
        return found

    async def release(self) -> None:
        self._pipe.close()
        if self._renewing is None:
            return
        self._renewing.cancel()
        self._renewing = None
        with contextlib.suppress(HeadraceError):  # a node that is away will let the lease end by itself
            await self._line.told("DELETE", f"{self._path}/publisher", {"id": self.id})

    # --- inside

    async def _publish(self, records: pa.RecordBatch | pa.Table) -> Published:
        base = ANY if self._shared else self.next_index
        request = PipeRequest(Verb.PUBLISH, self._sequence, base, self._packing.packed(records))
        return _published(await self._pipe.surely(request))

    def _move(self, records: pa.RecordBatch | pa.Table, published: Published) -> None:
        """So many more are there."""
        self.next_index += published.next_index - published.base_index
        if self._key is not None and records.num_rows:
            last = self._key.encode(records.column(self._key.position)[-1].as_py())
            self.last_key, self.head_key = last, max(self.head_key, last)

    async def _settle(self, doubtful: pa.RecordBatch | pa.Table) -> None:
        """Something else is published now: is what came before there, or not?"""
        if not self._shared:
            told = await self._pipe.surely(PipeRequest(Verb.WHERE))
            if told["next"] != self.next_index:
                raise Broken(
                    f"{self.where}: {doubtful.num_rows} entries that could not be acknowledged are there "
                    "after all: look at them, and open another publisher"
                )
        self._doubtful = None
        self._sequence += 1  # if it is still on its way, it comes too late from now on

    async def _where(self, wanted: dict[str, Any]) -> dict[str, Any]:
        path, which = f"{self._path}/publisher", self._which
        told: dict[str, Any] = await self._line.told("POST", path, wanted, headers=which)
        return told

    async def _renew(self, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            with contextlib.suppress(HeadraceError):  # if it is lost, the next batch is told so
                await self._where({"id": self.id})


def _published(told: dict[str, Any]) -> Published:
    return Published(told["first"], told["next"], tuple(told["duplicates"]), told["repeated"])


def _begins(records: pa.RecordBatch | pa.Table, doubtful: pa.RecordBatch | pa.Table) -> bool:
    """Whether these are the entries that are in doubt, or those and more."""
    count = doubtful.num_rows
    return records.num_rows >= count and _bytes(records.slice(0, count)) == _bytes(doubtful)


def _bytes(records: pa.RecordBatch | pa.Table) -> memoryview:
    """What they are packed to, by themselves: a slice would bring along what lies behind it in its buffers.

    They are compared by that, because NaN is not equal to itself.
    """
    table = records if isinstance(records, pa.Table) else pa.Table.from_batches([records])
    return packed(pa.concat_tables([table, table.slice(0, 0)]).combine_chunks())
