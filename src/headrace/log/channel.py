"""Channels: a queue on disk between a producer and a consumer, in one process or two.

    with channel("outbox", "uploader") as box:
        box.put(b"reading 1")             # durable when it returns
        data = box.get(timeout=1.0)
        box.ack()                         # everything got so far is done and need not come again

The consumer's position is kept on disk under its name. What was got but not acknowledged comes again after
a crash. Segments that every named consumer has acknowledged are removed when a segment is finalized.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.kernel.errors import Closed, WriterTaken
from headrace.kernel.names import checked_name
from headrace.log.batcher import FlushPolicy
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.positions import PositionFile
from headrace.log.queue import RAW_SCHEMA, Reader, Writer
from headrace.log.settings import Finalize, Retention, Settings

_SETTINGS = Settings(finalize=Finalize(bytes=8 << 20), retention=Retention(consumed=True))


class Channel:
    def __init__(self, path: Path, name: str, settings: Settings) -> None:
        """Use `channel`."""
        self._path = path
        self._name = checked_name(name, "channel name")
        self._settings = settings
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._position: PositionFile | None = None
        self._closed = False

    def put(self, data: bytes) -> int:
        """Add one record; it is durable when this returns. Its address."""
        return self.put_many([data])

    def put_many(self, records: Sequence[bytes]) -> int:
        """Add records; all are durable when this returns. The address of the first."""
        producer = self._producer()
        first = producer.write_many(records)
        producer.flush()
        return first

    def get(self, timeout: float | None = None) -> bytes | None:
        """The next record; None if there is none within `timeout` seconds (None waits for ever)."""
        self._check()
        try:
            return self._get(timeout)
        except Closed:
            if not self._closed:
                raise
            return None

    def _get(self, timeout: float | None) -> bytes | None:
        consumer = self._consumer()
        deadline = None if timeout is None else time.monotonic() + timeout
        while (data := consumer.read()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            consumer.wait(left)
        return data

    def ack(self) -> None:
        """Everything got so far is done; durable when this returns."""
        address = self._consumer().address
        assert self._position is not None
        if address != self._position.index:
            self._position.save(address)

    def __iter__(self) -> Iterator[bytes]:
        """Records as they come, until the channel is closed."""
        while not self._closed and (data := self.get()) is not None:
            yield data

    def _producer(self) -> Writer:
        self._check()
        if self._writer is None:
            self._writer = Writer(Log.open(self._path, RAW_SCHEMA), FlushPolicy())
        return self._writer

    def _consumer(self) -> Reader:
        self._check()
        if self._reader is None:
            self._position = PositionFile.open(Disk(), self._path, self._name)
            log = Log.open(self._path, RAW_SCHEMA, read_only=True)
            self._reader = Reader(log, max(self._position.index, log.first_index))
        return self._reader

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"the channel {self._path} is closed")

    def close(self) -> None:
        self._closed = True
        if self._reader is not None:
            self._reader.stop()  # another thread may be in it: its files go when that thread lets go
            self._reader = None
        for part in (self._writer, self._position):
            if part is not None:
                part.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def channel(path: str | Path, name: str, *, settings: Settings | None = None) -> Channel:
    """The channel at `path` for the consumer `name`, creating the queue if nothing is there."""
    made = Channel(Path(path), name, settings or _SETTINGS)
    with contextlib.suppress(WriterTaken):  # then it exists, and its producer is at work
        if not (Path(path) / "meta.json").exists():
            Log.open(path, RAW_SCHEMA, settings or _SETTINGS).close()
    return made
