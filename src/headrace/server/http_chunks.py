"""A stream's batches and moves of HEAD as pieces of a response: JSON lines, or one Arrow IPC stream."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from headrace.kernel.errors import HeadraceError
from headrace.log.damage import Damage
from headrace.log.segment_reader import Batch
from headrace.stream.scan import Scan
from headrace.stream.stream import Stream
from headrace.wire import http_words as words
from headrace.wire.json_rows import rows_of

_CHUNK_ROWS = 8192
_STEP_BYTES = 1 << 20


class Pieces:
    """What lies between two places of a stream, in steps of about a megabyte. For one thread at a time."""

    def __init__(
        self,
        scan: Scan,
        scan_from: Callable[[int], Scan],
        chunks: JsonChunks | ArrowChunks,
        damage: list[Damage],
        count: int | None,
    ) -> None:
        """`damage` is where the scan puts what it cannot read."""
        self._scan = scan
        self._scan_from = scan_from
        self._chunks = chunks
        self._damage = damage
        self._left = count
        self._failure: HeadraceError | None = None
        self.reached = scan.index
        """The index behind the last entry that was read."""

    @property
    def over(self) -> bool:
        """Whether there is nothing more, whatever is published."""
        return self._failure is None and (self._scan.done or self._left == 0)

    def step(self) -> list[bytes]:
        """What can be read now, up to a bound; [] if there is nothing yet. Errors come behind it."""
        if self._failure is not None:
            raise self._failure
        made: list[bytes] = []
        size = 0
        while size < _STEP_BYTES and not self.over:
            try:
                item = self._scan.next()
            except HeadraceError as error:
                if not made:
                    raise
                self._failure = error
                break
            chunks = self._damaged() + ([] if item is None else self._made(item))
            made += chunks
            size += sum(map(len, chunks))
            if item is None:
                break
        return made

    def begin(self) -> bytes:
        return self._chunks.begin()

    def end(self) -> bytes:
        return self._chunks.end(reached=self.over)

    def go_on(self) -> None:
        """Read on from `reached`, to where somebody else has read meanwhile."""
        self._scan = self._scan_from(self.reached)

    def close(self) -> None:
        self._scan.close()

    def _damaged(self) -> list[bytes]:
        found, self._damage[:] = list(self._damage), []
        return [self._chunks.damage(damage) for damage in found]

    def _made(self, item: Any) -> list[bytes]:
        if isinstance(item, Batch):
            if self._left is not None:
                item = item.slice(item.base_index, item.base_index + self._left)
                self._left -= item.records.num_rows
            self.reached = item.next_index
        return self._chunks.chunks(item)


class JsonChunks:
    """A line for each entry, with its index; and one for each move of HEAD."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._encoder = msgspec.json.Encoder()

    def begin(self) -> bytes:
        return b""

    def chunks(self, item: Any) -> list[bytes]:
        if not isinstance(item, Batch):
            head = {"_head": self._stream.key_of(item.key), "_index": item.next_index}
            return [self._encoder.encode(msgspec.to_builtins(head)) + b"\n"]
        made = []
        for at in range(0, item.records.num_rows, _CHUNK_ROWS):
            rows = rows_of(item.records.slice(at, _CHUNK_ROWS))
            lines = [{"_index": index, **row} for index, row in enumerate(rows, item.base_index + at)]
            made.append(self._encoder.encode_lines(lines))
        return made

    def damage(self, damage: Damage) -> bytes:
        return self._encoder.encode({"_damage": damage, "_index": damage.first_lost}) + b"\n"

    def end(self, *, reached: bool) -> bytes:
        return b""


class ArrowChunks:
    """One IPC stream. Notes beside each batch say what it is (see `wire.http_words`).

    A message does not depend on those before it, so several can make the messages of one response.
    """

    def __init__(self, stream: Stream, schema: pa.Schema) -> None:
        self.schema = schema
        self._stream = stream
        self._empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._written(self._empty, {})  # with it goes the schema, which `begin` answers

    def begin(self) -> bytes:
        """What comes before all batches."""
        return self.schema.serialize().to_pybytes()  # type: ignore[no-any-return]

    def chunks(self, item: Any) -> list[bytes]:
        if not isinstance(item, Batch):
            key = str(self._stream.key_of(item.key))
            notes = {words.NOTE_HEAD: key, words.NOTE_KEY: item.key, words.NOTE_INDEX: item.next_index}
            return [self._written(self._empty, notes)]
        notes = {
            words.NOTE_INDEX: item.base_index,
            words.NOTE_FIRST: item.first_key,
            words.NOTE_LAST: item.last_key,
            words.NOTE_TIME: item.time_us,
            words.NOTE_EPOCH: item.epoch,
        }
        return [self._written(item.records, notes)]

    def damage(self, damage: Damage) -> bytes:
        return self._written(self._empty, {words.NOTE_DAMAGE: msgspec.json.encode(damage).decode()})

    def end(self, *, reached: bool) -> bytes:
        if reached:
            self._writer.write_batch(self._empty, custom_metadata={words.NOTE_END: b"1"})
        self._writer.close()
        return self._taken()

    def _written(self, records: pa.RecordBatch, notes: dict[bytes, Any]) -> bytes:
        self._writer.write_batch(records, custom_metadata={key: str(note) for key, note in notes.items()})
        return self._taken()

    def _taken(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data
