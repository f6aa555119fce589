"""Bodies: how an Arrow record batch becomes the body of a frame, and back.

A small batch is one Arrow IPC message. A batch of 64 KiB or more with several columns is stored by
columns: a table, then one IPC message for each column, each padded to 64 bytes.

    for each column:  0  8  bytes of its message, padded     8  8  xxh3_64 of them

Then the frame's body checksum covers the table, and the table's sums cover the columns: every byte is
covered, and who wants one column of ten touches, checks and decompresses only that one.

Bodies are not copied on the way: the encoder collects the very buffers of the batch, which are handed
to the kernel in one call; the decoder makes arrays that point into the memory-mapped file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pyarrow as pa
import xxhash

from headrace.kernel.errors import Damaged, SchemaMismatch
from headrace.kernel.limits import COLUMN_SUMS_FROM_BYTES
from headrace.log.disk import BytesLike
from headrace.log.frame import Header, checksum, marks, padding

_ENTRY = struct.Struct("<QQ")


class EncodedBody:
    """The pieces of a body, in order, with what the header must say about them."""

    __slots__ = ("body_bytes", "body_sum", "marks", "pieces")

    def __init__(self, pieces: Sequence[BytesLike], body_bytes: int, body_sum: int, marks: int) -> None:
        self.pieces = pieces
        self.body_bytes = body_bytes
        self.body_sum = body_sum
        self.marks = marks


class BodyEncoder:
    """Turns batches of one schema into bodies."""

    def __init__(self, schema: pa.Schema, compression: str) -> None:
        for field in schema:
            if _has(pa.types.is_dictionary, field.type):
                raise SchemaMismatch(f"field {field.name!r} is a {field.type}: decode dictionaries first")
            if _has(pa.types.is_union, field.type):
                raise SchemaMismatch(f"field {field.name!r} is a {field.type}: unions cannot be stored")
        try:
            _empty(schema)
        except pa.ArrowException as error:
            raise SchemaMismatch(f"this schema cannot be stored: {error}") from error
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
        self._marks = marks(schema_tag=schema_tag(schema))
        self._marks_by_columns = self._marks | marks(by_columns=True)
        self._whole = _Message(schema, options)
        self._columns = [_Message(pa.schema([field]), options) for field in schema] if len(schema) > 1 else []

    def encode(self, records: pa.RecordBatch) -> EncodedBody:
        if (
            not self._columns
            or records.get_total_buffer_size() < COLUMN_SUMS_FROM_BYTES  # cheaper to ask for
            or records.nbytes < COLUMN_SUMS_FROM_BYTES
        ):
            pieces = self._whole.pieces(records)
            return EncodedBody(pieces, _size(pieces), _sum(pieces), self._marks)
        table = bytearray()
        pieces = []
        for message, column in zip(self._columns, records.columns, strict=True):
            parts = message.pieces(pa.RecordBatch.from_arrays([column], schema=message.schema))
            table += _ENTRY.pack(_size(parts), _sum(parts))
            pieces += parts
        table += padding(len(table))
        size = len(table) + _size(pieces)
        return EncodedBody([table, *pieces], size, checksum(table), self._marks_by_columns)


class BodyDecoder:
    """Turns bodies back into batches of one schema, or of some of its columns."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> None:
        self._schema = schema
        self._tag = schema_tag(schema)
        self._fields = [pa.schema([field]) for field in schema]
        self._chosen: list[int] | None = None
        self.schema = schema
        if columns is not None:
            if not columns:
                raise SchemaMismatch(f"choose at least one column of {', '.join(schema.names)}")
            self._chosen = [schema.get_field_index(name) for name in columns]
            if missing := [n for n, at in zip(columns, self._chosen, strict=True) if at < 0]:
                raise SchemaMismatch(f"no field {missing[0]!r}: the fields are {', '.join(schema.names)}")
            self.schema = pa.schema([schema.field(at) for at in self._chosen])

    def intact(self, header: Header, body: pa.Buffer) -> bool:
        """Whether every byte of the body is what was written."""
        if not header.by_columns:
            return checksum(body) == header.body_sum
        table = self._table(header, body)
        return table is not None and all(checksum(body.slice(at, size)) == s for at, size, s in table)

    def decode(self, header: Header, body: pa.Buffer) -> pa.RecordBatch:
        """The batch, or Damaged. Only what is asked for is checked, and all of that is."""
        if header.schema_tag != self._tag:
            raise Damaged("the batch was written with another schema than its segment's")
        if not header.by_columns:
            if checksum(body) != header.body_sum:
                raise Damaged("the body checksum does not match")
            records = pa.ipc.read_record_batch(body, self._schema)
            return records if self._chosen is None else records.select(self._chosen)
        table = self._table(header, body)
        if table is None:
            raise Damaged("the column table does not match its checksum")
        arrays = []
        for column in range(len(table)) if self._chosen is None else self._chosen:
            at, size, expected = table[column]
            part = body.slice(at, size)
            if checksum(part) != expected:
                raise Damaged(f"the checksum of column {self._schema.field(column).name!r} does not match")
            arrays.append(pa.ipc.read_record_batch(part, self._fields[column]).column(0))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _table(self, header: Header, body: pa.Buffer) -> list[tuple[int, int, int]] | None:
        """(offset, bytes, sum) of each column, or None if the table is damaged."""
        length = len(self._fields) * _ENTRY.size
        length += -length % 64
        if length > body.size or checksum(raw := body.slice(0, length)) != header.body_sum:
            return None
        table, at = [], length
        for size, expected in _ENTRY.iter_unpack(memoryview(raw)[: len(self._fields) * _ENTRY.size]):
            table.append((at, size, expected))
            at += size
        return table if at == body.size else None


def schema_tag(schema: pa.Schema) -> int:
    """16 bits that a schema's batches carry; metadata does not count."""
    return checksum(schema.remove_metadata().serialize()) & 0xFFFF


class _Message:
    """Makes IPC messages of one schema, as the list of their buffers rather than one copy."""

    def __init__(self, schema: pa.Schema, options: pa.ipc.IpcWriteOptions) -> None:
        self.schema = schema
        self._plain = options.compression is None
        self._sink = _Collector()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, mode="w"), schema, options=options)
        self._writer.write_batch(_empty(schema))  # a stream's first message is its schema: let it pass

    def pieces(self, records: pa.RecordBatch) -> list[BytesLike]:
        if self._plain and records.get_total_buffer_size() < COLUMN_SUMS_FROM_BYTES:
            # The same bytes in one piece: for few of them copies are cheaper than a call for each buffer.
            message = records.serialize()
            return [b"".join((message, padding(message.size)))]
        pieces: list[BytesLike] = []
        self._sink.taken = pieces
        self._writer.write_batch(records)
        if pad := padding(_size(pieces)):
            pieces.append(pad)
        return pieces


class _Collector:
    """A file to pyarrow, a list to us."""

    closed = False

    def __init__(self) -> None:
        self.taken: list[BytesLike] = []

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self.taken.append(view)
        return len(view)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    # Not by pa.array: its first call loads pandas where that is installed, and every log is opened here.
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _has(is_it: Callable[[pa.DataType], bool], kind: pa.DataType) -> bool:
    """Whether it, or a part of it, is of that kind."""
    return is_it(kind) or any(_has(is_it, kind.field(at).type) for at in range(kind.num_fields))


def _size(pieces: Sequence[BytesLike]) -> int:
    return sum(map(len, pieces))


def _sum(pieces: Sequence[BytesLike]) -> int:
    if len(pieces) == 1:
        return checksum(pieces[0])
    digest = xxhash.xxh3_64()
    for piece in pieces:
        digest.update(piece)
    return digest.intdigest()
