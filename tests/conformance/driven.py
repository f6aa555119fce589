"""The client for asyncio, driven from a thread that waits: the verbs of a stream, each awaited elsewhere.

So one suite can run over it. What it has no verb for (callbacks) is not here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from headrace.client.aio import AsyncStore
from headrace.client.aio_publisher import AsyncPublisher
from headrace.client.aio_stream import AsyncStream


class DrivenStore:
    def __init__(self, loop: Any, store: AsyncStore, path: Path) -> None:
        self._loop = loop
        self._store = store
        self._streams: list[DrivenStream] = []
        self.path = path

    def stream(self, *words: Any, **options: Any) -> DrivenStream:
        return self._kept(self._store.stream(*words, **options))

    def create(self, name: str, config: Any) -> DrivenStream:
        return self._kept(self._store.create(name, config))

    def ensure(self, name: str, config: Any) -> DrivenStream:
        return self._kept(self._store.ensure(name, config))

    def streams(self) -> list[str]:
        names: list[str] = self._loop.run(self._store.streams())
        return names

    def drop(self, name: str) -> None:
        self._loop.run(self._store.drop(name))

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self._loop.run(self._store.close())

    def _kept(self, opening: Any) -> DrivenStream:
        stream = DrivenStream(self._loop, self._loop.run(opening))
        self._streams.append(stream)
        return stream


class DrivenStream:
    def __init__(self, loop: Any, stream: AsyncStream) -> None:
        self._loop = loop
        self._stream = stream
        self._publishers: list[DrivenPublisher] = []
        self.name = stream.name

    def publisher(self, **options: Any) -> DrivenPublisher:
        made = DrivenPublisher(self._loop, self._loop.run(self._stream.publisher(**options)))
        self._publishers.append(made)
        return made

    def listen(self, *words: Any, **options: Any) -> Iterator[Any]:
        return self._steps(self._stream.listen(*words, **options))

    def listen_batches(self, *words: Any, **options: Any) -> Iterator[Any]:
        return self._steps(self._stream.listen_batches(*words, **options))

    def listen_with_heads(self, *words: Any, **options: Any) -> Iterator[Any]:
        return self._steps(self._stream.listen_with_heads(*words, **options))

    @property
    def schema(self) -> Any:
        return self._stream.schema

    @property
    def order_by(self) -> str | None:
        return self._stream.order_by

    @property
    def head(self) -> Any:
        return self._loop.run(self._stream.head())

    @property
    def next_index(self) -> int:
        index: int = self._loop.run(self._stream.next_index())
        return index

    @property
    def durable_index(self) -> int:
        index: int = self._loop.run(self._stream.durable_index())
        return index

    def info(self) -> Any:
        return self._loop.run(self._stream.info())

    def verify(self, progress: Any = None) -> Any:
        return self._loop.run(self._stream.verify(progress))

    def close(self) -> None:
        for publisher in self._publishers:
            publisher.close()

    def _steps(self, coming: AsyncIterator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._loop.run(anext(coming))  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(coming.aclose())  # type: ignore[attr-defined]


class DrivenPublisher:
    def __init__(self, loop: Any, publisher: AsyncPublisher) -> None:
        self._loop = loop
        self._publisher = publisher

    def publish(self, entry: Any) -> int:
        index: int = self._loop.run(self._publisher.publish(entry))
        return index

    def publish_batch(self, table: Any, **options: Any) -> Any:
        return self._loop.run(self._publisher.publish_batch(table, **options))

    def head(self, key: Any) -> None:
        self._loop.run(self._publisher.head(key))

    def flush(self) -> None:
        self._loop.run(self._publisher.flush())

    @property
    def next_index(self) -> int:
        return self._publisher.next_index

    @property
    def durable_index(self) -> int:
        return self._publisher.durable_index

    def close(self) -> None:
        self._loop.run(self._publisher.close())

    def __enter__(self) -> DrivenPublisher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
