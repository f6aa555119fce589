"""A stream's batches and moves of HEAD as pieces of a response: JSON lines, or one Arrow IPC stream."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pyarrow as pa

from headrace.log.segment_reader import Batch
from headrace.server.stream_desk import StreamDesk
from headrace.wire.json_rows import rows_of

_CHUNK_ROWS = 8192


class JsonChunks:
    """A line for each entry, with its index; and one for each move of HEAD."""

    def __init__(self, desk: StreamDesk) -> None:
        self._desk = desk
        self._encoder = msgspec.json.Encoder()

    def chunks(self, item: Any) -> list[bytes]:
        if not isinstance(item, Batch):
            head = {"_head": self._desk.stream.key_of(item.key), "_index": item.next_index}
            return [self._encoder.encode(msgspec.to_builtins(head)) + b"\n"]
        made = []
        for at in range(0, item.records.num_rows, _CHUNK_ROWS):
            rows = rows_of(item.records.slice(at, _CHUNK_ROWS))
            lines = [{"_index": index, **row} for index, row in enumerate(rows, item.base_index + at)]
            made.append(self._encoder.encode_lines(lines))
        return made

    def end(self) -> bytes:
        return b""


class ArrowChunks:
    """One IPC stream; each batch says the index of its first entry, a batch without rows a move of HEAD."""

    def __init__(self, desk: StreamDesk, schema: pa.Schema) -> None:
        self._desk = desk
        self._schema = schema
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def chunks(self, item: Any) -> list[bytes]:
        if isinstance(item, Batch):
            return [self._written(item.records, {"index": str(item.base_index)})]
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        key = str(self._desk.stream.key_of(item.key))
        return [self._written(empty, {"head": key, "index": str(item.next_index)})]

    def end(self) -> bytes:
        self._writer.close()
        return self._taken()

    def _written(self, records: pa.RecordBatch, notes: dict[str, str]) -> bytes:
        self._writer.write_batch(records, custom_metadata=notes)
        return self._taken()

    def _taken(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data
