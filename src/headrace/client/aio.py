"""The async client of a node: the nouns and verbs of `hr.open`, awaited.

    async with connect("http://localhost:7400") as store:
        orders = await store.stream("orders", Order, order_by="at")
        async with await orders.publisher() as publisher:
            await publisher.publish(Order(...))          # durable after flush()
        async for entry in orders.listen(follow=True): ...
        jobs = await store.journal("pages")
        await jobs.put("https://example.com/a")

This is the client; the blocking one (`hr.connect`) drives it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headrace.client.aio_journal import AsyncJournal
from headrace.client.aio_stream import AsyncStream
from headrace.client.awaited import AsyncFjClient, Link
from headrace.client.fj_upgrade import async_link
from headrace.client.node_line import NodeLine, Patience, path_of
from headrace.journal.settings import JournalSettings
from headrace.kernel.errors import NotFound
from headrace.kernel.names import checked_name
from headrace.log.meta import Meta, decode_meta
from headrace.log.settings import Settings
from headrace.stream.agreement import StreamConfig, Terms, check_config, check_exactly, stored_declaration
from headrace.stream.declaration import declare
from headrace.stream.errors import StreamExists
from headrace.wire.http_words import TERMS

__all__ = ["AsyncJournal", "AsyncStore", "AsyncStream", "Patience", "connect"]


def connect(
    url: str,
    token: str | None = None,
    *,
    ca: str | Path | None = None,
    patience: Patience | None = None,
) -> AsyncStore:
    """The store of a node. Nothing is sent before it is used."""
    return AsyncStore(NodeLine(url, token, ca=ca, patience=patience))


class AsyncStore:
    def __init__(self, line: NodeLine) -> None:
        """Use `connect`."""
        self.line = line

    @property
    def url(self) -> str:
        return self.line.url

    async def ready(self) -> None:
        """Return if the node answers; CannotConnect, and what else is wrong, if it does not."""
        await self.line.ask("GET", "/readyz")

    async def stream(
        self,
        name: str,
        type: Any = None,  # noqa: A002
        order_by: str | Callable[[Any], Any] | None = None,
        *,
        strict: bool = False,
        unique_by: str | None = None,
        unique_window: int | None = None,
        settings: Settings | None = None,
    ) -> AsyncStream:
        """The stream `name`: created with this type, or checked against what is there."""
        if type is None:
            meta = await self.meta(name)
            return AsyncStream(self.line, name, stored_declaration(meta), meta)
        config = StreamConfig(type, order_by, strict, unique_by, unique_window, settings)
        await self._make(name, config)
        return await self._opened(name, config, check_config)

    async def create(self, name: str, config: StreamConfig) -> AsyncStream:
        """A new stream; StreamExists if there is one of that name."""
        if not await self._make(name, config):
            raise StreamExists(f"there is a stream {name!r} at {self.url} already: choose another name")
        return await self._opened(name, config, check_config)

    async def ensure(self, name: str, config: StreamConfig) -> AsyncStream:
        """The stream `name` with exactly this configuration: created, or SchemaMismatch / BadSettings."""
        await self._make(name, config)
        return await self._opened(name, config, check_exactly)

    async def streams(self) -> list[str]:
        """The names of all streams that the token may see."""
        told = await self.line.surely(lambda: self.line.told("GET", "/streams"))
        names: list[str] = told["streams"]
        return names

    async def drop(self, name: str) -> None:
        """Remove a stream and all its entries."""
        await self.line.told("DELETE", path_of("streams", checked_name(name, "stream name")))

    async def journal(self, name: str, settings: JournalSettings | None = None) -> AsyncJournal:
        """The journal `name`, made if there is none. `settings`, if given, replace what it had.

        BadSettings if the node has it in use with others.
        """
        return await AsyncJournal.open(self.line, checked_name(name, "journal name"), settings)

    async def fj(self, name: str) -> AsyncFjClient:
        """The journal `name`, made if there is none, by its own protocol: many small requests at once."""
        return AsyncFjClient(await self.fj_link(name))

    async def fj_link(self, name: str) -> Link:
        await self.ensure_journal(name)
        return await async_link(self.line, name)

    async def journals(self) -> list[str]:
        told = await self.line.surely(lambda: self.line.told("GET", "/journals"))
        names: list[str] = told["journals"]
        return names

    async def has_journal(self, name: str) -> bool:
        return checked_name(name, "journal name") in await self.journals()

    async def meta(self, name: str) -> Meta:
        """What the node has stored of a stream; NotFound if there is none."""
        path = path_of("streams", checked_name(name, "stream name"), "meta")
        raw = await self.line.surely(lambda: self.line.ask("GET", path))
        return decode_meta(raw, f"the meta of {name!r} at {self.url}")

    async def close(self) -> None:
        await self.line.close()

    async def __aenter__(self) -> AsyncStore:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def ensure_journal(self, name: str) -> None:
        """Make the journal, unless it is there."""
        path = path_of("journals", checked_name(name, "journal name"))
        await self.line.surely(lambda: self.line.told("PUT", path))

    async def _make(self, name: str, config: StreamConfig) -> bool:
        """Make the stream, unless it is there; whether it was made now."""
        try:
            await self.meta(name)
            return False
        except NotFound:
            pass
        body = msgspec.json.encode(Terms.of(declare(config.type, config.order_by), config))
        path = path_of("streams", name)
        raw = await self.line.ask("PUT", path, body, media=TERMS)
        return bool(msgspec.json.decode(raw)["created"])

    async def _opened(self, name: str, config: StreamConfig, check: Callable[..., None]) -> AsyncStream:
        declaration, meta = declare(config.type, config.order_by), await self.meta(name)
        check(name, meta, declaration, config)
        return AsyncStream(self.line, name, declaration, meta)
