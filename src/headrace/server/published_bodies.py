"""The bodies of one publisher: Arrow IPC streams, of which most have the schema of the one before.

    schema ── record batch ── end            what a publisher sends again and again

A body that begins with the very bytes of the last schema, and holds one batch, is read as that: the schema
need not be made again, nor the stream be gone through twice, which takes half the time of a small body. What
is checked is the same, and every other body, and one that has anything odd about it, goes the long way.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch
from headrace.server.http_limits import HttpLimits
from headrace.server.http_publish import NO_ARROW, check_rows, check_unpacked, published_table
from headrace.wire.arrow_size import lone_batch, message_bytes, unpacked_message


class _Known(NamedTuple):
    preamble: bytes
    schema: pa.Schema


class PublishedBodies:
    """For one thread at a time."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._known: _Known | None = None

    def records(self, body: memoryview) -> pa.RecordBatch | pa.Table:
        """The entries of a body, checked; SchemaMismatch or TooLarge if it is none."""
        known = self._known
        if known is not None and body[: len(known.preamble)] == known.preamble:
            lone = lone_batch(body, len(known.preamble))
            if lone is not None:
                return self._batch(lone, known.schema)
        table = published_table(body, self._limits)
        size = message_bytes(body, 0)
        if size is not None:
            self._known = _Known(bytes(body[:size]), table.schema)
        return table

    def _batch(self, message: pa.ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
        try:
            check_unpacked(unpacked_message(message), self._limits.body_bytes)
            records = pa.ipc.read_record_batch(message, schema)
            records.validate(full=True)
        except NO_ARROW as error:
            raise SchemaMismatch(f"the body is no Arrow IPC stream: {error}") from error
        check_rows(records.num_rows, self._limits)
        return records
