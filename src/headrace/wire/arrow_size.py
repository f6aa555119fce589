"""How large an Arrow IPC stream is once it is unpacked: known from its metadata, before anything is unpacked.

A compressed buffer begins with its unpacked length (8 bytes; -1 if it is not compressed after all). Where the
buffers are is told by the message's metadata, a flatbuffer, of which just that much is read here:

    Message        header: field 2, length of the body: field 3
    RecordBatch     buffers: field 2, compression: field 3
    DictionaryBatch    data: field 1, a RecordBatch
"""

from __future__ import annotations

import struct

import pyarrow as pa

_U16, _U32, _I32, _I64 = (struct.Struct(code) for code in ("<H", "<I", "<i", "<q"))
_BUFFER = struct.Struct("<qq")
_MARK = b"\xff\xff\xff\xff"
"""What every message begins with."""
END = _MARK + bytes(4)
"""What a stream ends with."""


def unpacked_bytes(stream: bytes | memoryview) -> int:
    """Of all its messages together; Arrow's errors, or struct.error, if it is none."""
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
    total = 0
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return total
        total += unpacked_message(message)


def message_bytes(data: bytes | bytearray | memoryview, at: int) -> int | None:
    """How long the message is that begins at this place; None if that cannot be told yet."""
    if len(data) < at + 8:
        return None
    size = _U32.unpack_from(data, at + 4)[0]
    if size == 0:  # the end of the stream
        return 8
    if len(data) < at + 8 + size:
        return None
    raw = bytes(data[at + 8 : at + 8 + size])
    field = _field(raw, _U32.unpack_from(raw, 0)[0], 3)
    body = int(_I64.unpack_from(raw, field)[0]) if field else 0
    if body < 0:
        raise ValueError(f"a message whose body has {body} bytes")
    return 8 + int(size) + body


def lone_batch(stream: memoryview, at: int) -> pa.ipc.Message | None:
    """The record batch at this place of a stream, if it is all that comes there; None if it is not."""
    try:
        size = message_bytes(stream, at)
        if size is None or stream[at : at + 4] != _MARK or stream[at + size :] != END:
            return None
        message = pa.ipc.read_message(pa.py_buffer(stream[at : at + size]))
    except (pa.ArrowException, OSError, struct.error, ValueError):
        return None
    return message if message.type == "record batch" else None


def unpacked_message(message: pa.ipc.Message) -> int:
    """The same of one message."""
    if message.body is None:
        return 0
    size = int(message.body.size)
    if message.type not in ("record batch", "dictionary"):
        return size
    raw = message.metadata.to_pybytes()
    batch = _table(raw, _field(raw, _U32.unpack_from(raw, 0)[0], 2))
    if message.type == "dictionary":
        batch = _table(raw, _field(raw, batch, 1))
    if not _field(raw, batch, 3):
        return size
    vector = _table(raw, _field(raw, batch, 2))
    body = memoryview(message.body)
    for number in range(_U32.unpack_from(raw, vector)[0]):
        offset, length = _BUFFER.unpack_from(raw, vector + 4 + number * _BUFFER.size)
        if length >= 8:
            size += max(0, _I64.unpack_from(body, offset)[0])
    return size


def _field(raw: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 if it is left out."""
    vtable = table - _I32.unpack_from(raw, table)[0]
    if 4 + 2 * number >= _U16.unpack_from(raw, vtable)[0]:
        return 0
    offset = _U16.unpack_from(raw, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _table(raw: bytes, at: int) -> int:
    """What an offset at that place points to."""
    return int(at + _U32.unpack_from(raw, at)[0])
