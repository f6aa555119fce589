"""The publisher of a node's stream, for asyncio.

    async with await stream.publisher() as publisher:
        index = await publisher.publish(entry)        # known at once; durable after flush()

Entries gather while a batch is on its way, and go together with the next one. When too many have gathered,
`publish` waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.client.carrier import Carrier
from headrace.kernel.errors import Broken, Closed, HeadraceError
from headrace.log.split import portions
from headrace.stream.declaration import Declaration
from headrace.stream.errors import DuplicateId
from headrace.stream.gather import Gathered, records_of
from headrace.stream.publisher import Published, room_for
from headrace.stream.tables import as_table
from headrace.stream.taking import make_taking
from headrace.stream.unique import plain_type

_ALONE = -2
"""Instead of an index: the entry was not taken in, it must go alone."""


class AsyncPublisher:
    def __init__(self, carrier: Carrier, declaration: Declaration) -> None:
        """Use `AsyncStream.publisher`."""
        self._carrier = carrier
        self._declaration = declaration
        self._schema = carrier.meta.schema
        self._unique_by: str | None = carrier.meta.extra.get("stream", {}).get("unique_by")
        self._columns: list[list[Any]] = [[] for _ in declaration.columns]
        self._gate = _Gate(self._start)
        self._closed = False
        self._failure: HeadraceError | None = None
        self._sending: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        """Of those who send something else than what gathers. Meanwhile nothing does: no index is known."""
        settings = carrier.meta.settings
        self._portion_bytes = settings.containers.portion_bytes if settings.containers else None
        self._taking = make_taking(
            declaration, self._columns, self._gate, room_for(settings, _alone), strict=carrier.meta.strict
        )
        self._resume()

    async def publish(self, entry: Any) -> int:
        """Publish one entry; its index. It is durable after `flush`."""
        if self._unique_by is not None:
            return await self._publish_alone(entry)
        self._check()
        while self._turn.locked() or self._gate.full:
            # Waited for before it is taken: who is told of an error publishes it again.
            async with self._turn:
                await self.flush()
        index = self._taking.publish(entry)
        return index if index != _ALONE else await self._publish_alone(entry)

    async def publish_batch(self, table: Any, *, once: tuple[str, int] | None = None) -> Published:
        """Publish many entries at once, all or none; they are durable when it returns."""
        records = as_table(table, self._schema, self._declaration)
        async with self._turn:
            await self.flush()
            try:
                if once is not None:
                    return await self._carrier.append_once(records, once)
                return await self._carrier.append(records)
            finally:
                self._resume()

    async def head(self, key: Any) -> None:
        """Move HEAD: no later entry may have a smaller order key."""
        async with self._turn:
            await self.flush()
            await self._carrier.head(key)
            self._resume()

    async def flush(self) -> None:
        """Return once everything published so far is durable on the node."""
        self._check()
        while self._columns[-1] and self._failure is None:
            self._start()
            assert self._sending is not None
            await asyncio.shield(self._sending)  # whoever waits no more must not take it from the others
        self._check()

    @property
    def next_index(self) -> int:
        return self._carrier.next_index + len(self._columns[-1])

    @property
    def durable_index(self) -> int:
        return self._carrier.next_index

    async def close(self) -> None:
        """Flush, and give the stream free for the next publisher."""
        async with self._turn:
            if self._closed:
                return
            try:
                await self.flush()
            finally:
                self._closed = True
                await self._carrier.release()

    async def __aenter__(self) -> AsyncPublisher:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # --- inside

    def _check(self) -> None:
        """Raise what could not be sent; the next flush tries again, unless it is in doubt what is there."""
        if self._closed:
            raise Closed(f"the publisher of {self._carrier.where} is closed")
        failure = self._failure
        if failure is not None:
            if not isinstance(failure, Broken):
                self._failure = None
            raise failure

    def _start(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        """Send what has gathered, and what gathers meanwhile."""
        try:
            while count := len(self._columns[-1]):
                taken = [column[:count] for column in self._columns]
                records = records_of(taken, self._declaration, self._schema)
                for portion in portions(records, self._portion_bytes):
                    await self._carrier.append(portion)
                    for column in self._columns:
                        del column[: portion.num_rows]
                self._taking.restart()
                self._gate.full = False
        except HeadraceError as error:
            self._failure = error

    async def _publish_alone(self, entry: Any) -> int:
        """Whether an id is there already, or a large entry fits a container, only the node can tell."""
        gathered = Gathered(self._declaration, self._schema)
        gathered.take(entry)
        records = gathered.records()
        published = await self.publish_batch(records)
        if published.base_index == published.next_index:
            ids = records.column(self._unique_by)
            (found,) = await self._carrier.find_ids(ids.view(plain_type(ids.type)))
            raise DuplicateId(f"the id {ids[0].as_py()!r} is in the stream already, at index {found}", found)
        return published.base_index

    def _resume(self) -> None:
        carrier = self._carrier
        key = None
        if carrier.meta.order_by and (carrier.head_key or carrier.last_key is not None):
            key = carrier.key_of(carrier.head_key)
        self._taking.resume(self.next_index, key, carrier.head_key != carrier.last_key)


def _alone(entry: Any) -> int:
    return _ALONE


class _Gate:
    """Where a blocking publisher has its batcher: entries are sent by a task, and too many wait for it."""

    idle = True

    def __init__(self, start: Callable[[], None]) -> None:
        self.full = False
        self.wake = start

    def overflow(self) -> None:
        self.full = True

    def take_back(self) -> bool:
        return False

    def mend(self, index: int) -> bool:
        return True  # asyncio interrupts tasks only where they wait
