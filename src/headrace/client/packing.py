"""Packing: entries as an Arrow IPC stream, as a node takes them.

A stream is its schema, a message for each batch, and an end. A small batch of a schema that is known takes
longer to begin and end a stream for than to be put into its message; so the rest is kept, and put around it.
The bytes are the same.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.wire.arrow_size import END

_JOINED_BYTES = 1 << 16
"""Larger ones are better copied once less."""


class Packing:
    """Of batches that mostly have one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._preamble = schema.serialize()

    def packed(self, records: pa.RecordBatch | pa.Table) -> memoryview:
        if (
            isinstance(records, pa.RecordBatch)
            and records.get_total_buffer_size() < _JOINED_BYTES
            and records.schema.equals(self._schema, check_metadata=True)
        ):
            return memoryview(b"".join((self._preamble, records.serialize(), END)))
        return packed(records)


def packed(records: pa.RecordBatch | pa.Table) -> memoryview:
    """As an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, records.schema) as writer:
        writer.write(records)
    return memoryview(sink.getvalue())
